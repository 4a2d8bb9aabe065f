"""Why a framework does not see the machine's GPU."""

from __future__ import annotations


def facts_of(owner):
    return None


def diagnose(facts):
    return None

"""The distributions here are installed, and their own tests run, by the tests beside this file."""

collect_ignore = ["xdevice-pages"]

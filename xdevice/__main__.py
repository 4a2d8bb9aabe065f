"""``python -m xdevice`` is the command ``xdevice``."""

from xdevice.cli import main

raise SystemExit(main())

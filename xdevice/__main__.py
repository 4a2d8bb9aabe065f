"""``python -m xdevice`` is the command ``xdevice``."""

from xdevice.tools.cli import main

raise SystemExit(main())

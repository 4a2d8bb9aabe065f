import toy

CANNOT = {"synchronize": "a toy never works"}

raise OSError("libbroken.so: cannot open shared object file")

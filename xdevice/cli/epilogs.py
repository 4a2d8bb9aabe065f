"""What the help of a command says below its options."""

RUN = """\
Options come before or after SCRIPT, which is a Python file or, after -m, a module's name. An option that xdevice
run does not know goes to the script, and so does everything after --.

--virtual-gpus N gives every framework N virtual GPUs. With --stand-in they answer to the framework's
own names for its GPUs, so that a script written for CUDA runs unedited. It then runs once, under the
frameworks that it imports itself: options come before SCRIPT, and everything after it goes to the
script. --backend NAME is for a script that imports no framework itself, such as one that imports Keras.
--stand-in refuses what real GPUs refuse; --stand-in --lenient computes whatever the CPU can. With --races,
of PyTorch, two streams that use one tensor, the later without waiting for the earlier, are an error.

--watch-transfers says on stderr, when the script ends, which of its lines copy between the host and
a device, and what to write instead. The script runs once, as with --stand-in, and keeps its exit
status. A line that ends with # xdevice: allow may copy. Child processes are not watched.

Exit status: 0 if the script succeeds everywhere, 1 if it fails somewhere (with --strict also if
outputs differ), 2 for a mistake in the command, 130 after Ctrl-C.

Wall time is that of the whole process, imports included. Peak memory is that of the script and all
it starts: the most that samples have seen at once, or the kernel's figure for the script if larger.

Outputs are compared without colours and other control characters, and only the last state of a line that
is overwritten counts. The output of a failed run is not compared but shown apart. The first mebibyte
and 2000 lines of each output count. A script that prints over 256 mebibytes is stopped, and so are
all processes, daemons too, that a script leaves running when it ends.

--env tox makes each framework's environment ready with tox, as the project in this folder
configures it, and runs the script with that environment's Python. Names of environments are those
of the frameworks; all means those that the project has."""

BENCH = """\
xdevice bench --list names the experiments. Each framework has a process of its own, one after the
other. Sizes are the lessons' own times the scale, and smaller where memory is short.

Every time is measured after waiting for all devices. It is the median of up to
five turns, in which an experiment's lines are timed one after the other; where the quartiles of the
same work differ by more than a factor of 2, a line says that the machine is too busy. The ratio to the CPU is the
time of an experiment's first line, on the CPU, divided by this line's.

Exit status: 0 if all went well, 1 if a framework or an experiment failed, 2 for a mistake in the
command, 130 after Ctrl-C. An experiment that a framework cannot do, on two devices where there is
one, is skipped with the reason."""

LAUNCH = """\
Options come before SCRIPT; everything after it goes to the script. Each process finds its place in
the environment (XDEVICE_RANK, XDEVICE_WORLD_SIZE, XDEVICE_LOCAL_RANK …), and xdevice.distributed.init()
meets the others. On several hosts type the command on each, with its --node-rank.

Where there are several processes and OMP_NUM_THREADS is not set, it becomes each one's share of the
cores. Each line of output is shown behind its rank.

The first process that fails ends the job: all processes, with all that they have started, are asked to
stop, and killed three seconds later. The same after Ctrl-C; a second Ctrl-C kills at once.

With --restarts the job then starts again, with XDEVICE_RESTART one higher; not after Ctrl-C, --time-limit, which
is for all attempts together, or exit status 2, a mistake in the script's options. On one host only.

Exit status: 0 if all processes end with 0, else that of the one that failed (128 and the number of the
signal that killed it), 2 for a mistake in the command, 124 after --time-limit, 130 after Ctrl-C."""

/* A libnvidia-ml.so.1 for tests of what is said about NVIDIA GPUs on machines that have none.
 *
 * It reports as many GPUs as the environment variable FAKE_NVML_GPUS says, 2 if it is not set. Where
 * FAKE_NVML_HOLDER is the id of a process that holds 75 GiB of GPU 1. Where
 * FAKE_NVML_INIT_FAILS or FAKE_NVML_COUNT_FAILS is set, that call returns the error of that number.
 */

#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, MISMATCH = 18 };

struct memory {
    unsigned long long total, free, used;
};

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return number("FAKE_NVML_INIT_FAILS", SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error)
{
    return error == MISMATCH ? "Driver/library version mismatch" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    snprintf(version, size, "570.86.15");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)number("FAKE_NVML_GPUS", 2);
    return number("FAKE_NVML_COUNT_FAILS", SUCCESS);
}

/* A handle is the index plus one: zero would be a null pointer. */
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, size_t *handle)
{
    if ((int)index >= number("FAKE_NVML_GPUS", 2))
        return INVALID_ARGUMENT;
    *handle = index + 1;
    return SUCCESS;
}

int nvmlDeviceGetName(size_t handle, char *name, unsigned int size)
{
    (void)handle;
    snprintf(name, size, "Test GPU");
    return SUCCESS;
}

int nvmlDeviceGetUUID(size_t handle, char *uuid, unsigned int size)
{
    snprintf(uuid, size, "GPU-%08zx-0000-1111-2222-333344445555", handle - 1);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(size_t handle, struct memory *memory)
{
    (void)handle;
    memory->total = 80ull << 30;
    memory->used = 1ull << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

struct process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int instances[2];
};

/* Called twice: first for the number of processes, then for these. */
int nvmlDeviceGetComputeRunningProcesses_v3(size_t handle, unsigned int *count, struct process *processes)
{
    int holder = number("FAKE_NVML_HOLDER", 0);
    if (handle != 2 || !holder) {
        *count = 0;
        return SUCCESS;
    }
    if (*count == 0) {
        *count = 1;
        return INSUFFICIENT_SIZE;
    }
    *count = 1;
    processes[0].pid = (unsigned int)holder;
    processes[0].memory = 75ull << 30;
    return SUCCESS;
}

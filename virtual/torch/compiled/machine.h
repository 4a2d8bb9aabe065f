// The GPUs' memory is the machine's: the processes of a program share a file that says what each has of each GPU.
//
// A process that was killed leaves its row behind, which counts as long as a process with its number exists.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#ifndef _WIN32
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace xdevice::machine {
constexpr int MOST_GPUS = 64, MOST_PROCESSES = 256;

struct Row {
  std::atomic<int64_t> process;
  std::atomic<int64_t> bytes[MOST_GPUS];
};

inline std::string path;             // empty: the GPUs are this process's alone
inline Row* rows = nullptr;          // of all processes
inline Row* ours = nullptr;
inline int file = -1;

#ifdef _WIN32
inline Row* row() { return nullptr; }
struct Lock {};
inline bool is_alive(int64_t) { return false; }
inline void leave() {}
#else
inline bool is_alive(int64_t process) { return process && (kill(pid_t(process), 0) == 0 || errno == EPERM); }

struct Lock {
  Lock() { while (flock(file, LOCK_EX) && errno == EINTR) {} }
  ~Lock() { flock(file, LOCK_UN); }
};

// Whether the path still names the file: another process may have removed it between our opening and our locking it.
inline bool is_there() {
  struct stat opened, named;
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino;
}

// The row of this process, which is made when it first uses a GPU; a null pointer if there is no file.
inline Row* row() {
  if (ours || path.empty()) return ours;
  constexpr size_t SIZE = sizeof(Row) * MOST_PROCESSES;
  file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return path.clear(), nullptr;
  Lock lock;
  if (!is_there()) return close(file), row();  // which unlocks it
  void* mapped = ftruncate(file, SIZE) == 0
      ? mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
      : MAP_FAILED;
  if (mapped == MAP_FAILED) return path.clear(), nullptr;
  rows = static_cast<Row*>(mapped);
  for (Row* each = rows; each != rows + MOST_PROCESSES && !ours; ++each)
    if (!is_alive(each->process)) ours = each;
  if (!ours) return path.clear(), nullptr;
  for (auto& bytes : ours->bytes) bytes = 0;
  ours->process = getpid();
  return ours;
}

// To be called at the end of the process. The last one removes the file.
inline void leave() {
  if (!ours || ours->process != getpid()) return;
  Lock lock;
  ours->process = 0;
  ours = nullptr;
  bool is_last = true;
  for (Row* each = rows; each != rows + MOST_PROCESSES; ++each) is_last &= !is_alive(each->process);
  if (is_last) unlink(path.c_str());
  path.clear();
}
#endif

// Calls a function with the number and the bytes of each other process that has some of a GPU's memory.
template <class F>
void for_each_other(int gpu, F call) {
  if (!row()) return;
  for (Row* each = rows; each != rows + MOST_PROCESSES; ++each)
    if (int64_t bytes = each->bytes[gpu]; each != ours && bytes && is_alive(each->process)) call(each->process, bytes);
}

inline int64_t of_others(int gpu) {
  int64_t sum = 0;
  for_each_other(gpu, [&](int64_t, int64_t bytes) { sum += bytes; });
  return sum;
}

// What this process has of a GPU of the machine: memory that is reserved, and CUDA's context.
struct Share {
  int gpu = 0;  // a negative one is of no machine
  int64_t bytes = 0;

  // Takes memory, unless all processes together then have more than the limit.
  bool take(int64_t length, int64_t limit) {
    Row* row = gpu < 0 ? nullptr : machine::row();
    if (!row) return length <= limit - bytes && (bytes += length, true);
    Lock lock;
    if (length > limit - bytes - of_others(gpu)) return false;
    row->bytes[gpu] = bytes += length;
    return true;
  }
  void give_back(int64_t length) {
    bytes -= length;
    if (ours && gpu >= 0) ours->bytes[gpu] = bytes;
  }
  int64_t of_all() const { return bytes + of_others(gpu); }
};
}  // namespace xdevice::machine

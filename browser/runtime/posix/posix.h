// What Weft and libc++ use of POSIX and wasi-libc lacks: included before every file. Files of a browser have no owners, modes,
// locks or links, so these functions succeed where ignoring them is right and fail with ENOSYS where it is not (posix.c).
#ifndef WEFT_POSIX_H
#define WEFT_POSIX_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

int chmod(const char* path, mode_t mode);
int fchmod(int file, mode_t mode);
int fchmodat(int folder, const char* path, mode_t mode, int flags);
char* realpath(const char* path, char* result);
int mkstemp(char* pattern);
uid_t geteuid(void);

#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
int flock(int file, int operation);

#define DT_SOCK 12
#define DT_FIFO 1

#define MADV_WILLNEED 3
#define MADV_DONTNEED 4
int madvise(void* address, size_t length, int advice);

#ifdef __cplusplus
}
#endif

#endif

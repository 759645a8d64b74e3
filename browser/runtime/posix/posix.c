#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

static int fail(int error) {
  errno = error;
  return -1;
}

int chmod(const char* path, mode_t mode) { return 0; }
int fchmod(int file, mode_t mode) { return 0; }
int fchmodat(int folder, const char* path, mode_t mode, int flags) { return 0; }
uid_t geteuid(void) { return 0; }
// Only this module sees its files.
int flock(int file, int operation) { return 0; }
int madvise(void* address, size_t length, int advice) { return 0; }
int statvfs(const char* path, struct statvfs* result) { return fail(ENOSYS); }

int mkstemp(char* pattern) {
  const size_t length = strlen(pattern);
  if (length < 6 || strcmp(pattern + length - 6, "XXXXXX") != 0) return fail(EINVAL);
  for (unsigned number = 0; number < 1000000; ++number) {
    snprintf(pattern + length - 6, 7, "%06u", number);
    const int file = open(pattern, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return fail(EEXIST);
}

// There are no links, so a path is real.
char* realpath(const char* path, char* result) {
  if (strlen(path) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  return result ? strcpy(result, path) : strdup(path);
}

void* dlopen(const char* path, int flags) { return NULL; }
void* dlsym(void* library, const char* name) { return NULL; }
int dlclose(void* library) { return fail(ENOSYS); }
char* dlerror(void) { return "a module of WebAssembly loads no libraries"; }
int dladdr(const void* address, Dl_info* info) { return 0; }

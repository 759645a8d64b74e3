// File systems of a browser do not say how much space they have: statvfs fails with ENOSYS.
#ifndef WEFT_POSIX_SYS_STATVFS_H
#define WEFT_POSIX_SYS_STATVFS_H

#ifdef __cplusplus
extern "C" {
#endif

struct statvfs {
  unsigned long f_bsize, f_frsize;
  unsigned long long f_blocks, f_bfree, f_bavail;
};
int statvfs(const char* path, struct statvfs* result);

#ifdef __cplusplus
}
#endif

#endif

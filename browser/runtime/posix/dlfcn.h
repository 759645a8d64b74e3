// A module of WebAssembly loads no libraries: dlopen gives null, and dlerror says so.
#ifndef WEFT_POSIX_DLFCN_H
#define WEFT_POSIX_DLFCN_H

#ifdef __cplusplus
extern "C" {
#endif

#define RTLD_NOW 2
#define RTLD_LOCAL 0

typedef struct {
  const char* dli_fname;
  void* dli_fbase;
  const char* dli_sname;
  void* dli_saddr;
} Dl_info;

void* dlopen(const char* path, int flags);
void* dlsym(void* library, const char* name);
int dlclose(void* library);
char* dlerror(void);
int dladdr(const void* address, Dl_info* info);

#ifdef __cplusplus
}
#endif

#endif

// A WebGPU library that loses its device: Dawn, but for the submission number WEFT_TEST_LOSE_AT, which destroys the device
// first. What is not defined here is found in Dawn, which this library depends on. At the end it tells how many there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <webgpu.h>

static WGPUDevice device;
static long submissions;

__attribute__((destructor)) static void tell(void) { fprintf(stderr, "submissions: %ld\n", submissions); }

static void* of_dawn(const char* name) { return dlsym(dlopen("libwebgpu_dawn.so", RTLD_LAZY | RTLD_NOLOAD), name); }

WGPUQueue wgpuDeviceGetQueue(WGPUDevice of) {
  device = of;
  return ((WGPUProcDeviceGetQueue)of_dawn("wgpuDeviceGetQueue"))(of);
}

void wgpuQueueSubmit(WGPUQueue queue, size_t count, const WGPUCommandBuffer* commands) {
  const char* at = getenv("WEFT_TEST_LOSE_AT");
  ++submissions;
  if (at && submissions == atol(at)) ((WGPUProcDeviceDestroy)of_dawn("wgpuDeviceDestroy"))(device);
  ((WGPUProcQueueSubmit)of_dawn("wgpuQueueSubmit"))(queue, count, commands);
}

// Destructors of thread_local objects: the one thread ends with the module, so they run with those of static objects.
int __cxa_atexit(void (*destroy)(void*), void* object, void* module);

int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* module) {
  return __cxa_atexit(destroy, object, module);
}

// What benchmarks with peers on OpenMP's threads share.
#pragma once

#include <sched.h>

#include <string>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef WEFT_HAS_DNNL
#include <dnnl.h>

#include <fmt/format.h>
#endif

namespace weft::figures {

/// Weft's workers keep off their caller's processor; the peers' (oneDNN's are OpenMP's) get the same, as some schedulers
/// pack woken threads.
inline void spread_openmp_threads() {
#ifdef _OPENMP
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  const int caller = sched_getcpu();
#pragma omp parallel
  if (omp_get_thread_num() > 0) {
    cpu_set_t others = allowed;
    CPU_CLR(caller, &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
  }
#endif
}

/// oneDNN's name and version; "" without it.
inline std::string onednn_name() {
#ifdef WEFT_HAS_DNNL
  return fmt::format("oneDNN {}.{}.{}", dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch);
#else
  return "";
#endif
}

}  // namespace weft::figures

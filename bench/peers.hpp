// What benchmarks with peers on OpenMP's threads share.
#pragma once

#include <sched.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

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

#ifdef WEFT_HAS_DNNL
inline void require(dnnl_status_t status) {
  if (status == dnnl_success) return;
  fmt::print(stderr, "oneDNN: status {}\n", static_cast<int>(status));
  std::exit(1);
}

/// A matrix, or `batch` of them one after the other, for oneDNN's matmul.
struct DnnlMatrix {
  std::int64_t batch, rows, columns;
  bool transposed;  // in memory
  dnnl_data_type_t type;
  void* data;
  dnnl_memory_desc_t description() const {
    const dnnl_dims_t dims{batch, rows, columns};
    const dnnl_dims_t strides{rows * columns, transposed ? 1 : columns, transposed ? rows : 1};
    const int skipped = batch == 1 ? 1 : 0;
    dnnl_memory_desc_t desc;
    require(dnnl_memory_desc_init_by_strides(&desc, 3 - skipped, dims + skipped, type, strides + skipped));
    return desc;
  }
};

/// C = A B by oneDNN. What it makes lives until the process ends.
inline std::function<void()> dnnl_product(const DnnlMatrix& a, const DnnlMatrix& b, const DnnlMatrix& c) {
  static dnnl_engine_t engine = nullptr;
  static dnnl_stream_t stream = nullptr;
  if (engine == nullptr) {
    require(dnnl_engine_create(&engine, dnnl_cpu, 0));
    require(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
  }
  const dnnl_memory_desc_t of_a = a.description(), of_b = b.description(), of_c = c.description();
  dnnl_matmul_desc_t matmul;
  require(dnnl_matmul_desc_init(&matmul, &of_a, &of_b, nullptr, &of_c));
  dnnl_primitive_desc_t described;
  require(dnnl_primitive_desc_create(&described, &matmul, nullptr, engine, nullptr));
  dnnl_primitive_t primitive;
  require(dnnl_primitive_create(&primitive, described));
  std::vector<dnnl_exec_arg_t> arguments;
  const auto bind = [&](int slot, const dnnl_memory_desc_t& desc, void* data) {
    dnnl_memory_t memory;
    require(dnnl_memory_create(&memory, &desc, engine, data));
    arguments.push_back({slot, memory});
  };
  bind(DNNL_ARG_SRC, of_a, a.data);
  bind(DNNL_ARG_WEIGHTS, of_b, b.data);
  bind(DNNL_ARG_DST, of_c, c.data);
  return [primitive, arguments] {
    require(dnnl_primitive_execute(primitive, stream, static_cast<int>(arguments.size()), arguments.data()));
    require(dnnl_stream_wait(stream));
  };
}
#endif

}  // namespace weft::figures

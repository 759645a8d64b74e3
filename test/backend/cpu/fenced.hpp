// Memory for operands of kernels, behind which nothing may be read.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace weft::cpu {

/// Memory that ends with a page; reads beyond it fail.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    whole_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(static_cast<char*>(whole_) + mapped_ - page, page, PROT_NONE);
    data = static_cast<unsigned char*>(whole_) + mapped_ - page - bytes;
  }
  ~Fenced() { munmap(whole_, mapped_); }
  Fenced(const Fenced&) = delete;
  unsigned char* data;

 private:
  void* whole_;
  std::size_t mapped_;
};

}  // namespace weft::cpu

// The CPU backend: its memory and its description.
#include "backend/cpu/backend.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "backend/cpu/calls.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/prepared.hpp"
#include "backend/cpu/program.hpp"
#include "backend/cpu/quant/matmul.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr std::size_t kLine = 64, kPage = 4096, kHugePage = 2 << 20;
constexpr Extent kNearBytes = 2 << 20;  // of the last cache, for one thread

class CpuBuffer final : public backend::Buffer {
 public:
  CpuBuffer(std::shared_ptr<char> memory, std::size_t bytes, bool is_borrowed = false)
      : memory_(std::move(memory)), bytes_(bytes), is_borrowed_(is_borrowed) {}
  std::size_t bytes() const override { return bytes_; }
  bool is_borrowed() const override { return is_borrowed_; }
  char* data() const { return memory_.get(); }

 private:
  std::shared_ptr<char> memory_;
  std::size_t bytes_;
  bool is_borrowed_;
};

std::shared_ptr<char> allocate_bytes(std::size_t bytes, std::string_view label, Pages pages = Pages::huge) {
  const std::uint64_t limit = physical_memory();
  // Large buffers use huge pages, so that streaming through them rarely misses the TLB. Other buffers of some size begin at a
  // page, so that of a cache only the pages that were written take memory.
  const std::size_t alignment = bytes >= 2 * kHugePage && pages == Pages::huge ? kHugePage
                                : bytes >= 16 * kPage                          ? kPage
                                                                               : kLine;
  void* memory = bytes > limit ? nullptr : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr)
    throw DeviceError(fmt::format(
        "cpu: no memory for \"{}\": {} bytes asked for, {} in this machine; use smaller sizes", label, bytes, limit));
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(memory, bytes / alignment * alignment, MADV_HUGEPAGE);
#endif
  return {static_cast<char*>(memory), [](char* p) { std::free(p); }};
}

class CpuPacking final : public backend::WeightPacking {
 public:
  bool supports(BlockType type) const override { return QuantisedMatrix::supports(type); }
  std::size_t packed_bytes(BlockType type, Extent n, Extent k) const override {
    return static_cast<std::size_t>(QuantisedMatrix::packed_bytes(type, n, k));
  }
  void pack(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, backend::Buffer& to,
            FunctionRef<void(std::span<const std::byte> part)> before) const override {
    QuantisedMatrix::pack_into(type, blocks, n, k, memory_of(to).first(packed_bytes(type, n, k)), before);
  }
  void unpack(BlockType type, backend::Buffer& from, Extent n, Extent k, std::span<std::byte> blocks) const override {
    QuantisedMatrix::restore(type, memory_of(from), n, k, blocks);
  }
  std::unique_ptr<backend::SharedMemory> shared_memory(std::size_t bytes, bool in_file) const override {
    return std::make_unique<WeightMemory>(bytes, in_file ? Pages::usual : Pages::huge);
  }
  bool can_keep() const override { return true; }
  std::uint64_t layout_digest(BlockType type) const override { return QuantisedMatrix::layout_digest(type); }
  std::span<const std::byte> view(backend::Buffer& buffer) const override { return memory_of(buffer); }
  backend::BufferPtr borrow(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) const override {
    return borrow_memory(std::move(owner), bytes);
  }
};

class CpuBackend final : public backend::Backend {
 public:
  CpuBackend() {
    description_.name = "cpu";
    description_.hardware = fmt::format("{} ({}, {} threads)", processor_name(), name(isa()), thread_count());
    for (const Element& row : kElements)
      if (row.on_cpu) description_.dtypes.push_back(row.type);
    description_.buffer_bytes_max = description_.binding_bytes_max = physical_memory();
    for (const Element& row : kElements)
      if (widen_function(row.type) != nullptr) description_.product_reads.push_back(row.type);
    description_.attention_reads = description_.product_reads;
    description_.integer_product_reads = {DType::i8, DType::u8};
    description_.offset_alignment = kLine;
    description_.near_bytes = kNearBytes;
    description_.reads_turned_weights = true;
    description_.has_kernel = [](const graph::Call& call) { return calls().accepts(call); };
    description_.details = {{"instruction set", name(isa())},
                            {"threads", std::to_string(thread_count())},
                            {"memory", fmt::format("{:.1f} GiB", static_cast<double>(physical_memory()) / (1 << 30))}};
  }
  const backend::Description& describe() const override { return description_; }
  int storage_bits(DType type) const override { return element(type).bits; }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    return allocate_memory(bytes, label);
  }

  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    char* whole = memory(to, first, count, type);
    if (type != DType::boolean)
      return copy_elements(type, host, 0, whole, static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    char* at = whole + first;
    const auto* from = static_cast<const unsigned char*>(host);  // kernels rely on 0 and 1
    for (Extent i = 0; i < count; ++i) at[i] = from[i] != 0;
  }
  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    copy_elements(type, memory(from, first, count, type), static_cast<std::size_t>(first), host, 0,
                  static_cast<std::size_t>(count));
    clear_unused_bits(type, host, static_cast<std::size_t>(count));
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override { return make_program(plan); }
  void synchronize() override {}  // programs run to their end
  const backend::WeightPacking* weight_packing() const override { return &packing_; }

 private:
  /// The whole buffer, after a check that the elements are inside it.
  static char* memory(backend::Buffer& buffer, Extent first, Extent count, DType type) {
    const std::size_t end = bytes_of(type, static_cast<std::size_t>(first + count));
    if (first < 0 || count < 0 || end > buffer.bytes())
      throw InternalError(fmt::format("cpu: elements [{}, {}) of {} are outside of a buffer of {} bytes", first,
                                      first + count, name_of(type), buffer.bytes()));
    return reinterpret_cast<char*>(memory_of(buffer).data());
  }

  backend::Description description_;
  CpuPacking packing_;
};

}  // namespace

backend::BufferPtr WeightMemory::allocate(std::size_t bytes, std::string_view label) {
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  if (left_ < rounded) {
    // Only pages that are written take memory, so a piece may be too large.
    left_ = std::max(rounded, piece_bytes_);
    next_ = allocate_bytes(left_, label, pages_);
  }
  auto buffer = std::make_shared<CpuBuffer>(next_, bytes);
  next_ = {next_, next_.get() + rounded};
  left_ -= rounded;
  return buffer;
}

backend::BufferPtr allocate_memory(std::size_t bytes, std::string_view label) {
  return std::make_shared<CpuBuffer>(allocate_bytes(bytes, label), bytes);
}

backend::BufferPtr borrow_memory(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                 bool is_writable) {
  auto* const first = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  return std::make_shared<CpuBuffer>(std::shared_ptr<char>(std::move(owner), first), bytes.size(), !is_writable);
}

std::span<std::byte> memory_of(backend::Buffer& buffer) {
  const auto* ours = dynamic_cast<const CpuBuffer*>(&buffer);
  if (ours == nullptr) throw InternalError("cpu: a buffer belongs to another device");
  return {reinterpret_cast<std::byte*>(ours->data()), buffer.bytes()};
}

std::unique_ptr<backend::Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace weft::cpu

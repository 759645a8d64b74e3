#include "backend/trace/backend.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "graph/attention.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::trace {
namespace {

struct HostBuffer final : backend::Buffer {
  explicit HostBuffer(std::size_t bytes) : data(bytes) {}
  std::size_t bytes() const override { return data.size(); }
  std::vector<std::byte> data;
};

struct Recorded final : backend::Program {
  explicit Recorded(const kernel::Plan& plan) : text(kernel::to_string(plan)) {
    for (const auto& buffer : plan.buffers)
      if (buffer.external < 0) scratch += buffer.bytes;
    for (const kernel::Kernel& each : plan.kernels)
      kernel::visit_operands(each, [&](const kernel::Operand& operand, bool is_written) {
        if (!is_written) return;
        const int external = plan.buffers[static_cast<std::size_t>(operand.buffer)].external;
        if (external >= 0) written.insert(external);
      });
  }
  /// Results are zeros: a recycled buffer would hold other values, which ops sized by values would take for sizes.
  void run(std::span<const backend::BufferPtr> buffers) override {
    for (const int external : written) {
      auto& data = static_cast<HostBuffer&>(*buffers[static_cast<std::size_t>(external)]).data;
      std::fill(data.begin(), data.end(), std::byte{});
    }
  }
  std::string source() const override { return text; }
  std::size_t scratch_bytes() const override { return scratch; }
  std::string text;
  std::size_t scratch = 0;
  std::set<int> written;
};

/// Keeps blocks unchanged.
class TracePacking final : public backend::WeightPacking {
 public:
  bool supports(BlockType type) const override {
    return is_block(type) || type == BlockType::f32 || type == BlockType::f16 || type == BlockType::bf16;
  }
  std::size_t packed_bytes(BlockType type, Extent n, Extent k) const override {
    return (static_cast<std::size_t>(bytes_for<ShapeError>(type, Shape{n, k}, "packed matrix")) + 3) / 4 * 4;
  }
  void pack(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, backend::Buffer& to,
            FunctionRef<void(std::span<const std::byte> part)> before) const override {
    if (blocks.size() != bytes_for<ShapeError>(type, Shape{n, k}, "packed matrix"))
      throw ShapeError(fmt::format("packed matrix: {} bytes are not a [{}, {}] matrix of {}", blocks.size(), n, k,
                                   weft::name_of(type)));
    if (before) before(blocks);
    std::copy(blocks.begin(), blocks.end(), static_cast<HostBuffer&>(to).data.begin());
  }
  void unpack(BlockType, backend::Buffer& from, Extent, Extent, std::span<std::byte> blocks) const override {
    std::copy_n(static_cast<HostBuffer&>(from).data.begin(), blocks.size(), blocks.begin());
  }
};

class TraceBackend final : public backend::Backend {
 public:
  TraceBackend() {
    description_.name = "trace";
    description_.hardware = "records plans, computes nothing";
    description_.is_software = true;
    for (const Element& row : kElements)
      if (row.on_cpu) description_.dtypes.push_back(row.type);
    description_.buffer_bytes_max = description_.binding_bytes_max =
        static_cast<std::size_t>(std::min<std::uint64_t>(std::uint64_t{1} << 40, SIZE_MAX));
    description_.has_kernel = [](const graph::Call& call) {
      constexpr Extent kWidthMax = 128;
      return call.row().form != graph::KernelForm::attention || graph::fits_tiles(call, kWidthMax);
    };
  }
  const backend::Description& describe() const override { return description_; }
  int storage_bits(DType type) const override { return element(type).bits; }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view) override {
    return std::make_shared<HostBuffer>(bytes);
  }
  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    copy_elements(type, host, 0, bytes_in(to, first, count, type), static_cast<std::size_t>(first),
                  static_cast<std::size_t>(count));
  }
  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    copy_elements(type, bytes_in(from, first, count, type), static_cast<std::size_t>(first), host, 0,
                  static_cast<std::size_t>(count));
    clear_unused_bits(type, host, static_cast<std::size_t>(count));
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    return std::make_unique<Recorded>(plan);
  }
  void synchronize() override {}
  const backend::WeightPacking* weight_packing() const override { return &packing_; }

 private:
  static std::byte* bytes_in(backend::Buffer& buffer, Extent first, Extent count, DType type) {
    auto& data = static_cast<HostBuffer&>(buffer).data;
    if (bytes_of(type, static_cast<std::size_t>(first + count)) > data.size())
      throw InternalError("trace: transfer beyond the end of a buffer");
    return data.data();
  }
  backend::Description description_;
  TracePacking packing_;
};

}  // namespace

std::unique_ptr<backend::Backend> make_trace_backend() { return std::make_unique<TraceBackend>(); }

}  // namespace weft::trace

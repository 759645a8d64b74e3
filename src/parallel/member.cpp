#include <fmt/format.h>

#include <algorithm>

#include "parallel/group.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"
#include "weft/parallel.hpp"

namespace weft::parallel {
namespace {

// Values that are on their way to the host at most. Each takes memory of the host that the device can write to.
constexpr std::size_t kComing = 3;

/// Null where the value has to be copied when it is needed.
std::unique_ptr<backend::Readback> start_reading(Tensor value) {
  value.eval();
  const std::size_t bytes = bytes_of(value.dtype(), static_cast<std::size_t>(value.numel()));
  if (bytes == 0 || bytes % 4 != 0 || !value.node()->storage)
    return nullptr;  // transfers are words; constants have none
  return runtime::backend_of(value.device())
      .start_download(*runtime::buffer_of(*value.node()), 0, static_cast<Extent>(bytes / 4));
}

}  // namespace

Member::Member(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

int Member::size() const { return group_->size(); }
void Member::barrier() { group_->barrier(); }

std::vector<Tensor> Member::all_reduce_mean(std::span<const Tensor> values) {
  for (const Tensor& value : values)
    if (value.dtype() != DType::f32 && value.dtype() != DType::f16 && value.dtype() != DType::bf16)
      throw DTypeError(
          fmt::format("all_reduce_mean: adds f32, f16 or bf16, not {}; cast the value", name_of(value.dtype())));
  std::vector<std::unique_ptr<backend::Readback>> coming(values.size());
  std::size_t started = 0;
  std::vector<Tensor> means;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // A device that works beside the host copies the next values while the host adds these.
    for (; started < std::min(values.size(), i + kComing); ++started) coming[started] = start_reading(values[started]);
    const Tensor& value = values[i];
    const std::span<std::byte> numbers = group_->numbers(rank_, value.dtype(), static_cast<std::size_t>(value.numel()));
    if (coming[i])
      coming[i]->finish(numbers.data());
    else
      value.copy_to(numbers.data(), numbers.size());
    means.push_back(tensor_from_bytes(group_->mean(rank_).data(), value.shape(), value.dtype(), value.device()));
  }
  return means;
}

Tensor Member::all_reduce_mean(const Tensor& value) { return all_reduce_mean(std::span(&value, 1))[0]; }

std::vector<Tensor> Member::broadcast(std::span<const Tensor> values) {
  std::vector<Tensor> copies;
  std::vector<std::byte> bytes;
  for (const Tensor& value : values) {
    bytes.resize(bytes_of(value.dtype(), static_cast<std::size_t>(value.numel())));
    if (rank_ == 0) value.copy_to(bytes.data(), bytes.size());
    group_->broadcast(rank_, bytes);
    copies.push_back(rank_ == 0 ? value
                                : tensor_from_bytes(bytes.data(), value.shape(), value.dtype(), value.device()));
  }
  return copies;
}

Tensor Member::broadcast(const Tensor& value) { return broadcast(std::span(&value, 1))[0]; }

void Member::send(int to, const Tensor& value) {
  check_other("send", to);
  Group::Sent sent{value.dtype(), value.shape(),
                   std::vector<std::byte>(bytes_of(value.dtype(), static_cast<std::size_t>(value.numel())))};
  value.copy_to(sent.bytes.data(), sent.bytes.size());
  group_->send(rank_, to, std::move(sent));
}

Tensor Member::receive(int from) {
  check_other("receive", from);
  const Group::Sent sent = group_->receive(from, rank_);
  return tensor_from_bytes(sent.bytes.data(), sent.shape, sent.type, default_device());
}

void Member::check_other(const char* call, int rank) const {
  if (rank >= 0 && rank < size() && rank != rank_) return;
  throw UsageError(fmt::format("{}: rank {} of {} members, by the member of rank {}; name another member", call, rank,
                               size(), rank_));
}

}  // namespace weft::parallel

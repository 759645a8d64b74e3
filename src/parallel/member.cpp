#include <fmt/format.h>

#include "parallel/group.hpp"
#include "weft/error.hpp"
#include "weft/parallel.hpp"

namespace weft::parallel {

Member::Member(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

int Member::size() const { return group_->size(); }
void Member::barrier() { group_->barrier(); }

std::vector<Tensor> Member::all_reduce_mean(std::span<const Tensor> values) {
  for (const Tensor& value : values)
    if (value.dtype() != DType::f32)
      throw DTypeError(fmt::format("all_reduce_mean: adds f32, not {}; cast the value", name_of(value.dtype())));
  std::vector<Tensor> means;
  for (const Tensor& value : values) {
    const std::span<float> numbers = group_->numbers(rank_, static_cast<std::size_t>(value.numel()));
    value.copy_to(numbers.data(), numbers.size_bytes());
    means.push_back(tensor_from_bytes(group_->mean(rank_).data(), value.shape(), DType::f32, value.device()));
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

}  // namespace weft::parallel

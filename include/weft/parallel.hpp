// Several devices at one task: a thread, a session and a copy of the work for each, and means over all of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft::parallel {

class Group;

/// One of the threads that `run` starts. Its calls are collective, except `send` and `receive`: all members make the same calls
/// in the same order, and a call returns when all have made it. If a member throws, the calls of the others throw the same error.
class Member {
 public:
  Member(std::shared_ptr<Group> group, int rank);

  /// 0 to size() - 1; the place of its device in the list that `run` was given.
  int rank() const { return rank_; }
  int size() const;

  /// The mean of each value over the members, on this member's device, in the value's type. The sums are f32, in the order of ranks,
  /// and rounded once, so every member gets the same bits. Values travel through the memory of the host: 4 bytes an element from each
  /// device and 4 to it, or 2 each way for f16 and bf16. With several values, a device copies the next ones while the host adds.
  /// Shapes    the same at every member.
  /// Dtypes    f32, f16, bf16.
  /// Errors    DTypeError: other values. UsageError: members give different numbers of elements, or different types.
  /// Gradient  none.
  std::vector<Tensor> all_reduce_mean(std::span<const Tensor> values);
  Tensor all_reduce_mean(const Tensor& value);

  /// The values of rank 0, on this member's device. The others give values of the same shapes and dtypes, whose elements are
  /// not read.
  /// Errors    UsageError: members give different numbers of bytes.
  std::vector<Tensor> broadcast(std::span<const Tensor> values);
  Tensor broadcast(const Tensor& value);

  /// Sends a value to another member, which gets the values of this member in their order by `receive`. Returns when the value is in the
  /// memory of the host, and does not wait for the other member.
  /// Errors    UsageError: no such rank, or the member's own.
  void send(int to, const Tensor& value);
  /// The next value that a member has sent to this one, on this member's device. Waits for it.
  /// Errors    UsageError as above.
  Tensor receive(int from);

  /// Returns when all members have called it.
  void barrier();

 private:
  void check_other(const char* call, int rank) const;

  std::shared_ptr<Group> group_;
  int rank_;
};

/// Runs `work` once for each device, at the same time: each in a thread and a session of its own, whose default device it is and
/// whose settings of the compiler are the caller's. All of them divide the caller's threads. A device may be named
/// twice, which is useful in tests.
///
///     parallel::run(devices, [&](parallel::Member& member) {
///       manual_seed(1);  // the same weights everywhere
///       Model model;
///       optim::AdamW optimizer(model);
///       Compiled gradients([&](std::span<const Tensor> batch) { return grad(loss(model, batch), optimizer.parameters()); });
///       Compiled update([&](std::span<const Tensor> mean) { return std::vector{optimizer.step(mean)}; });
///       for (int i = 0; i < steps; ++i) update(member.all_reduce_mean(gradients(batch_of(i, member.rank()))));
///       if (member.rank() == 0) model.save("model.safetensors");
///     });
///
/// Errors  UsageError: no devices. What a member throws, when all have ended; the first one if several do.
void run(std::span<const Device> devices, const std::function<void(Member&)>& work);

/// Devices by their names, with commas between: "webgpu:0,webgpu:1". Errors: those of `parse_device`; UsageError for an empty
/// name.
std::vector<Device> parse_devices(std::string_view text);

}  // namespace weft::parallel

// Threads that work beside the caller's, each in a session and on a device of its own.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "parallel/group.hpp"
#include "weft/device.hpp"

namespace weft::parallel {

/// Members of a group that work in threads. A member that throws fails the group with its error, to which its device is
/// added.
class Team {
 public:
  /// Starts `work(rank)` for each rank from `first` on; the caller is the ranks before. devices[rank] is the default device of
  /// the rank's session, the settings of the compiler are the caller's, and all members divide the caller's threads.
  Team(std::shared_ptr<Group> group, std::span<const Device> devices, int first, std::function<void(int rank)> work);
  /// Fails the group and waits for the threads. A step that they were making is lost.
  ~Team();
  Team(const Team&) = delete;

  /// Waits until every thread has returned; then throws the error of the first one that failed, if any did.
  void join();

 private:
  std::shared_ptr<Group> group_;
  std::function<void(int rank)> work_;
  std::vector<std::jthread> threads_;
};

}  // namespace weft::parallel

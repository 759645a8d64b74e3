#include "parallel/team.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/threads.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/session.hpp"

namespace weft::parallel {
namespace {

/// Why a group ends whose Team is destroyed. No user sees it.
struct TeamIsOver {};

}  // namespace

Team::Team(std::shared_ptr<Group> group, std::span<const Device> devices, int first, std::function<void(int rank)> work)
    : group_(std::move(group)), work_(std::move(work)) {
  const CompileSettings settings = compile_settings();
  const int threads = std::max(1, thread_count() / group_->size());
  for (int rank = first; rank < static_cast<int>(devices.size()); ++rank) {
    const Device device = devices[static_cast<std::size_t>(rank)];
    threads_.emplace_back([this, rank, device, settings, threads] {
      try {
        const Session session({.threads = threads, .device = device});
        const auto in = session.enter();
        compile_settings() = settings;
        work_(rank);
      } catch (Error& error) {
        // An error that another member's failure threw here is that member's, and other threads may be reading it.
        if (!group_->failure()) error.add_context(fmt::format("working as member {} on {}", rank, device.to_string()));
        group_->fail(std::current_exception());
      } catch (...) {
        group_->fail(std::current_exception());
      }
    });
  }
}

Team::~Team() { group_->fail(std::make_exception_ptr(TeamIsOver())); }

void Team::join() {
  for (std::jthread& thread : threads_)
    if (thread.joinable()) thread.join();
  if (const std::exception_ptr failure = group_->failure()) std::rethrow_exception(failure);
}

}  // namespace weft::parallel

#include "jinja/budget.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::jinja {
namespace {

thread_local Budget* t_current = nullptr;
constexpr std::uint64_t kWorkBetweenLooks = 512;

}  // namespace

void fail(std::string fact, std::string cure) { throw Fault{std::move(fact), std::move(cure)}; }

Budget::Budget(const Limits& limits) : limits_(limits), outer_(t_current), start_(std::chrono::steady_clock::now()) {
  t_current = this;
}
Budget::~Budget() { t_current = outer_; }

Budget* Budget::current() { return t_current; }

void Budget::take(std::size_t bytes) {
  if (bytes > limits_.memory_bytes - used_bytes_)
    fail(fmt::format("the values of this render take more than {} bytes, its limit", limits_.memory_bytes),
         "shorten the messages or the template");
  used_bytes_ += bytes;
  work(bytes / 1024);
}

void Budget::work(std::uint64_t units) {
  work_ += units;
  if (work_ < next_look_) return;
  next_look_ = work_ + kWorkBetweenLooks;
  look_at_clock();
}

void Budget::iteration() {
  if (++iterations_ > limits_.iterations)
    fail(fmt::format("the loops of this render turn more than {} times, its limit", limits_.iterations),
         "shorten the messages or the template");
  work(1);
}

void Budget::enter() {
  if (depth_ >= limits_.depth)
    fail(fmt::format("calls and values are nested deeper than {} levels", limits_.depth),
         "look for a macro that calls itself without end");
  ++depth_;
}

void Budget::look_at_clock() const {
  if (std::chrono::steady_clock::now() - start_ > limits_.time)
    fail(fmt::format("the render takes more than {} ms, its limit", limits_.time.count()),
         "shorten the messages or the template");
}

}  // namespace weft::jinja

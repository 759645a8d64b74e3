// What a call costs beyond its handler: bench_operations [SECONDS a row].
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "weft/catalogue.hpp"
#include "weft/weft.hpp"

namespace {

using namespace weft;

// Median over rounds of the mean of a round, in microseconds.
double microseconds(double seconds, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRound = 1000;
  std::vector<double> rounds;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end || rounds.size() < 5) {
    const auto start = Clock::now();
    for (int i = 0; i < kRound; ++i) call();
    rounds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kRound);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 1;
  auto registry = std::make_shared<operations::Registry>();
  operations::Catalogue catalogue(registry);
  registry->add({.space = "bench", .name = "open"}, [](operations::Context& call) { return call.input(); });
  registry->add(
      {.space = "bench",
       .name = "guarded",
       .input = Value::parse(R"({"type": "object", "required": ["name", "count"], "additionalProperties": false,
                   "properties": {"name": {"type": "string", "maxLength": 100}, "count": {"type": "integer", "minimum": 0, "default": 3}}})"),
       .output = Value::parse(R"({"type": "object", "properties": {"count": {"type": "integer"}}})"),
       .access = {.scopes = {"bench"}}},
      [](operations::Context& call) {
        return Value::object({{"count", call.input("count")}});
      });
  registry->add({.space = "bench", .name = "nested"},
                {.run = [](operations::Context& call) { return call.call("bench.open", 1); }, .reach = {"bench.open"}});
  operations::Exchange exchange(registry);
  const operations::CallOptions owner{.identity = registry->owner()};
  const Value input = Value::object({{"name", "a name"}, {"count", 3}});
  const Tensor x = zeros({4});
  const Value tensor_input = Value::object({{"x", x}});

  const auto row = [&](const char* name, const std::function<void()>& call) {
    fmt::print("{:<58} {:7.2f} us\n", name, microseconds(seconds, call));
  };
  row("call, no schema, no access control", [&] { exchange.call("bench.open", 1); });
  row("call, schemas of two members, a scope", [&] { exchange.call("bench.guarded", input, owner); });
  row("call that calls another", [&] { exchange.call("bench.nested", 1); });
  row("tensor.tanh by call (the graph is built, nothing runs)",
      [&] { exchange.call("tensor.tanh", tensor_input, owner); });
  row("tanh in C++ (the same)", [&] { (void)weft::tanh(x); });
  row("call with a deadline, on another thread",
      [&] { exchange.call("bench.open", 1, {.deadline = operations::Clock::now() + std::chrono::seconds(60)}); });
  return 0;
}

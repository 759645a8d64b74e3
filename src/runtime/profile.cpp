#include "weft/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "base/json.hpp"
#include "weft/compile.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// Seconds of one run of `work`, whose result depends on its argument: the least of several batches.
double seconds_of(const Tensor& x, const std::function<Tensor(const Tensor&)>& work) {
  auto step = compile([&](Tensor argument) { return work(argument); });
  constexpr double kSeconds = 0.04;
  constexpr int kBatches = 4;
  const auto time = [&](int count) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) step(x);
    synchronize(x.device());
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  time(1);  // compiles
  const double once = time(1);
  const int count = std::clamp(static_cast<int>(kSeconds / kBatches / std::max(once, 1e-6)), 1, 200);
  double least = std::numeric_limits<double>::infinity();
  for (int batch = 0; batch < kBatches; ++batch) least = std::min(least, time(count) / count);
  return least;
}

Tensor ramp(const Shape& shape, DType type, Device device) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 1021) / 512 - 1;
  const Tensor x = cast(tensor_from_bytes(values.data(), shape, DType::f32, device), type);
  x.eval();
  return x;
}

double tera(double operations, double microseconds) { return operations / std::max(microseconds, 1e-3) / 1e6; }
double giga(double bytes, double microseconds) { return bytes / std::max(microseconds, 1e-3) / 1e3; }

}  // namespace

DeviceRates measure_rates(Device device) {
  const bool is_cpu = device.kind == Device::Kind::cpu;
  const Extent side = is_cpu ? 768 : 4096, elements = is_cpu ? Extent{1} << 24 : Extent{1} << 27;
  const double operations = 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
  const auto product = [&](DType type) {
    const Tensor x = ramp({side, side}, type, device);
    return operations / seconds_of(x, [](const Tensor& a) { return matmul(a, transpose(a)); });
  };
  DeviceRates rates;
  rates.operations_per_second = product(DType::f32);
  rates.half_operations_per_second = product(DType::f16);
  const Tensor x = ramp({elements}, DType::f32, device);
  rates.bytes_per_second = 8.0 * static_cast<double>(elements) / seconds_of(x, [](const Tensor& a) { return a * 2.0; });
  return rates;
}

double Profile::microseconds() const {
  double sum = 0;
  for (const KernelProfile& kernel : kernels) sum += kernel.microseconds;
  return sum;
}

double roofline(const KernelProfile& kernel, const DeviceRates& rates) {
  const double rate = kernel.on_matrices ? rates.half_operations_per_second : rates.operations_per_second;
  double least = 0;
  if (rate > 0) least = kernel.operations / rate;
  if (rates.bytes_per_second > 0) least = std::max(least, kernel.bytes / rates.bytes_per_second);
  return 1e6 * least / std::max(kernel.microseconds, 1e-3);
}

std::string to_table(const Profile& profile) {
  if (profile.kernels.empty()) return "this device does not time kernels\n";
  struct Row {
    KernelProfile sum;
    int count = 0;
  };
  std::map<std::string_view, Row> by_name;
  KernelProfile all;
  for (const KernelProfile& kernel : profile.kernels) {
    Row& row = by_name[kernel.name];
    ++row.count;
    row.sum.on_matrices = kernel.on_matrices;
    for (KernelProfile* sum : {&row.sum, &all}) {
      sum->microseconds += kernel.microseconds;
      sum->operations += kernel.operations;
      sum->bytes += kernel.bytes;
    }
  }
  std::vector<std::pair<std::string_view, Row>> rows(by_name.begin(), by_name.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.sum.microseconds > b.second.sum.microseconds; });
  const bool has_rates = profile.rates.bytes_per_second > 0;
  const auto line = [&](const KernelProfile& sum, int count, std::string_view name, const std::string& share) {
    return fmt::format("{:>10.1f} {:>6.1f} {:>6} {:>9.3f} {:>8.1f} {:>9}  {}\n", sum.microseconds,
                       100 * sum.microseconds / std::max(all.microseconds, 1e-3), count,
                       tera(sum.operations, sum.microseconds), giga(sum.bytes, sum.microseconds), share, name);
  };
  std::string text = fmt::format("{:>10} {:>6} {:>6} {:>9} {:>8} {:>9}  {}\n", "us", "%", "count", "TFLOP/s", "GB/s",
                                 has_rates ? "roofline" : "", "kernel");
  for (const auto& [name, row] : rows)
    text += line(row.sum, row.count, name,
                 has_rates ? fmt::format("{:.0f} %", 100 * roofline(row.sum, profile.rates)) : std::string());
  text +=
      line(all, static_cast<int>(profile.kernels.size()), fmt::format("all {} kernels", profile.kernels.size()), "");
  if (has_rates)
    text += fmt::format("{}: products {:.2f} TFLOP/s in f32, {:.2f} in f16; copies {:.0f} GB/s\n",
                        profile.hardware.empty() ? profile.device : profile.hardware,
                        profile.rates.operations_per_second / 1e12, profile.rates.half_operations_per_second / 1e12,
                        profile.rates.bytes_per_second / 1e9);
  return text;
}

std::string to_json(const Profile& profile) {
  Json kernels = Json::array();
  for (const KernelProfile& kernel : profile.kernels) {
    Json row = {{"name", kernel.name},
                {"begin_us", kernel.begin},
                {"us", kernel.microseconds},
                {"operations", kernel.operations},
                {"bytes", kernel.bytes},
                {"tflop_per_s", tera(kernel.operations, kernel.microseconds)},
                {"gb_per_s", giga(kernel.bytes, kernel.microseconds)},
                {"on_matrices", kernel.on_matrices}};
    if (profile.rates.bytes_per_second > 0) row["roofline"] = roofline(kernel, profile.rates);
    kernels.push_back(std::move(row));
  }
  Json all = {{"device", profile.device}, {"hardware", profile.hardware}, {"us", profile.microseconds()}};
  if (profile.rates.bytes_per_second > 0)
    all["rates"] = {{"operations_per_second", profile.rates.operations_per_second},
                    {"half_operations_per_second", profile.rates.half_operations_per_second},
                    {"bytes_per_second", profile.rates.bytes_per_second}};
  all["kernels"] = std::move(kernels);
  return all.dump(1) + "\n";
}

std::string to_trace(const Profile& profile) {
  Json events = Json::array();
  const auto name_of_track = [&](const char* kind, std::string_view name) {
    events.push_back({{"ph", "M"}, {"pid", 1}, {"tid", 1}, {"name", kind}, {"args", {{"name", name}}}});
  };
  name_of_track("process_name", profile.hardware.empty() ? profile.device : profile.hardware);
  name_of_track("thread_name", "kernels");
  for (const KernelProfile& kernel : profile.kernels) {
    Json args = {{"TFLOP/s", tera(kernel.operations, kernel.microseconds)},
                 {"GB/s", giga(kernel.bytes, kernel.microseconds)}};
    if (profile.rates.bytes_per_second > 0) args["roofline %"] = 100 * roofline(kernel, profile.rates);
    events.push_back({{"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"name", kernel.name},
                      {"ts", kernel.begin},
                      {"dur", kernel.microseconds},
                      {"args", std::move(args)}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump() + "\n";
}

}  // namespace weft

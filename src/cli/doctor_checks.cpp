#include "cli/doctor_checks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/linear_algebra.hpp"
#include "graph/op.hpp"
#include "ops/table.hpp"
#include "runtime/op_cases.hpp"
#include "weft/weft.hpp"

namespace weft::cli {
namespace {

using Tensors = std::vector<Tensor>;

using runtime::numbers_of;
using runtime::random_numbers;

Tensor random(const Shape& shape, DType type, std::uint32_t seed, double lo = -2, double hi = 2) {
  return runtime::tensor_of(random_numbers(shape.numel(), lo, hi, seed), shape, type);
}

// ---- Comparing ---------------------------------------------------------------------------------------------------------

double ulp(double size) {
  const float f = std::max(static_cast<float>(std::abs(size)), std::numeric_limits<float>::min());
  return static_cast<double>(std::nextafter(f, std::numeric_limits<float>::infinity())) - f;
}

// Allowed error of an element whose true value is `reference`; `largest` is the greatest of the tensor.
using Allowance = std::function<double(double reference, double largest)>;

Allowance of_largest(double part) {
  return [part](double, double largest) { return part * std::max(largest, 1e-30); };
}
double exactly(double, double) { return 0; }

class Group {
 public:
  void compare(const std::string& name, const std::vector<double>& got, const std::vector<double>& wanted,
               const Allowance& allowed) {
    if (got.size() != wanted.size())
      return fail(name, fmt::format("{} elements instead of {}", got.size(), wanted.size()));
    double largest = 0;
    for (double w : wanted)
      if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = part_of_allowed(got[i], wanted[i], allowed(wanted[i], largest));
      if (error > worst) worst = error, at = i;
    }
    if (worst > found_.worst) found_.worst = worst, found_.worst_case = name;
    if (worst > 1)
      fail(name, fmt::format("error {:.3g} of what is allowed: {:.9g} for {:.9g} at element {}", worst, got[at],
                             wanted[at], at));
  }

  // Runs a case. An exception counts as its failure, except for the loss of the device.
  void run(const std::string& name, const std::function<void()>& body) {
    ++found_.cases;
    try {
      body();
    } catch (const DeviceError& error) {
      throw;
    } catch (const std::exception& error) {
      fail(name, error.what());
    }
  }

  // A function of the float dtype, on the device in f32 and on the CPU in f64.
  void both(Device device, const std::string& name, const Allowance& allowed, const std::function<Tensors(DType)>& f) {
    run(name, [&] {
      const auto got = values(device, DType::f32, f), wanted = values(kCpu, DType::f64, f);
      if (got.size() != wanted.size()) return fail(name, "another number of results");
      for (std::size_t i = 0; i < got.size(); ++i)
        compare(got.size() == 1 || i == 0 ? name : fmt::format("{}, result {}", name, i), got[i], wanted[i], allowed);
    });
  }

  static std::vector<std::vector<double>> values(Device device, DType type, const std::function<Tensors(DType)>& f) {
    set_default_device(device);
    const Tensors tensors = f(type);
    eval(tensors);
    std::vector<std::vector<double>> result;
    for (const Tensor& t : tensors) result.push_back(numbers_of(t));
    return result;
  }

  void fail(const std::string& name, const std::string& fact) {
    found_.failures.push_back(fmt::format("{}: {}", name, fact));
  }
  Findings take() { return std::move(found_); }

 private:
  static double part_of_allowed(double got, double wanted, double allowed) {
    if (std::isnan(wanted)) return std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
    // A value beyond f32 must be infinite.
    if (std::abs(wanted) > std::numeric_limits<float>::max())
      return got == std::copysign(std::numeric_limits<double>::infinity(), wanted)
                 ? 0
                 : std::numeric_limits<double>::infinity();
    const double error = std::abs(got - wanted);
    if (error == 0) return 0;
    return allowed > 0 && std::isfinite(error) ? error / allowed : std::numeric_limits<double>::infinity();
  }
  Findings found_;
};

// The result followed by the gradients of sum(weights * result) to the inputs.
Tensors with_gradients(const Tensor& y, Tensors inputs) {
  const Tensors gradients = grad(y, inputs, random(y.shape(), y.dtype(), 99, 0.5, 1.5));
  Tensors all{y};
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

// ---- Rows --------------------------------------------------------------------------------------------------------------

std::vector<double> tested_attributes(const auto& row) {
  std::vector<double> values;
  for (const ops::Attribute& a : row.attributes) values.push_back(a.tested);
  return values;
}

constexpr Extent kRowElements = 1000;

Tensors row_inputs(const ops::ElementwiseRow& row, DType type) {
  Tensors inputs;
  for (std::size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(
        random({kRowElements}, type, static_cast<std::uint32_t>(i + 1), row.tested.of(i).lo, row.tested.of(i).hi));
  return inputs;
}

// Reference values of a row over columns of inputs.
std::vector<double> reference(const scalar::Expression& f, const std::vector<std::vector<double>>& columns,
                              const std::vector<double>& attributes) {
  std::vector<double> values;
  for (std::size_t i = 0; i < columns[0].size(); ++i) {
    std::vector<double> operands;
    for (const auto& column : columns) operands.push_back(column[i]);
    operands.insert(operands.end(), attributes.begin(), attributes.end());
    values.push_back(scalar::evaluate(f, operands));
  }
  return values;
}

Findings check_rows(Device device) {
  Group group;
  set_default_device(device);
  // The functions of a GPU may be a little less accurate than the rows demand of the CPU.
  const double slack = device.kind == Device::Kind::cpu ? 1 : 4;
  for (const ops::ElementwiseRow* row : ops::elementwise_rows()) {
    if (!ops::allows(row->dtypes, DType::f32)) continue;
    group.run(std::string(row->name), [&] {
      const Tensors inputs = row_inputs(*row, DType::f32);
      const std::vector<double> attributes = tested_attributes(*row);
      std::vector<std::vector<double>> columns;
      for (const Tensor& t : inputs) columns.push_back(numbers_of(t));
      const std::vector<double> got = numbers_of(elementwise(row->name, inputs, attributes));
      group.compare(std::string(row->name), got, reference(ops::forward(*row), columns, attributes),
                    [&](double wanted, double) {
                      return slack * row->max_ulp * ulp(std::max(std::abs(wanted), row->ulp_floor));
                    });
    });
  }
  return group.take();
}

Findings check_integer_rows(Device device) {
  Group group;
  set_default_device(device);
  for (const ops::ElementwiseRow* row : ops::elementwise_rows())
    for (DType type : {DType::i32, DType::u32, DType::boolean}) {
      if (!ops::allows(row->dtypes, type) || row->result == ops::Result::floating) continue;
      const std::string name = fmt::format("{} of {}", row->name, name_of(type));
      group.run(name, [&] {
        const double hi = type == DType::boolean ? 2 : 100, lo = type == DType::i32 ? -100 : 0;
        Tensors inputs;
        std::vector<std::vector<double>> columns;
        for (std::size_t i = 0; i < row->inputs.size(); ++i) {
          inputs.push_back(random({kRowElements}, type, static_cast<std::uint32_t>(i + 1), lo, hi));
          columns.push_back(numbers_of(inputs.back()));
        }
        const std::vector<DType> types(inputs.size(), type);
        std::vector<double> attributes;
        for (const ops::Attribute& a : row->attributes)
          attributes.push_back(std::isfinite(a.default_value) ? std::trunc(a.tested) : a.default_value);
        const DType attribute_type = ops::attribute_type(*row, types);
        attributes = ops::checked_attributes(*row, attributes, attribute_type);
        group.compare(name, numbers_of(elementwise(row->name, inputs, attributes)),
                      reference(ops::typed_forward(*row, types), columns, attributes), exactly);
      });
    }
  return group.take();
}

Findings check_row_gradients(Device device) {
  Group group;
  for (const ops::ElementwiseRow* row : ops::elementwise_rows()) {
    if (!row->differentiable || !ops::allows(row->dtypes, DType::f32)) continue;
    group.both(device, std::string(row->name), of_largest(2e-5), [&](DType type) {
      const Tensors inputs = row_inputs(*row, type);
      const Tensor y = elementwise(row->name, inputs, tested_attributes(*row));
      return grad(y, inputs, random(y.shape(), type, 99, 0.5, 1.5));
    });
  }
  return group.take();
}

// ---- Other families ----------------------------------------------------------------------------------------------------

Findings check_reductions(Device device) {
  Group group;
  const std::vector<Axes> axes = {{}, {0}, {1}, {2}, {0, 2}, {1, 2}};
  for (const ops::ReduceRow& row : ops::reduce_rows())
    for (const Axes& a : axes) {
      const bool position = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
      if (position && a.size() > 1) continue;
      std::string name = fmt::format("{} over", row.name);
      for (int axis : a) name += fmt::format(" {}", axis);
      if (a.empty()) name += " all";
      group.both(device, name, of_largest(2e-5), [&](DType type) {
        const Tensor x = random({5, 37, 11}, type, 1, row.tested.lo, row.tested.hi);
        const Tensor y = reduce(row.name, x, a);
        return row.differentiable ? with_gradients(y, {x}) : Tensors{y};
      });
    }
  return group.take();
}

// Tested cases of all rows that are neither elementwise ops nor reductions.
Findings check_cases(Device device) {
  Group group;
  for (const graph::OpRow* row : graph::op_rows())
    for (const graph::OpCase& one : row->cases) {
      if (row->family == graph::kDecompositionFamily && device != kCpu) continue;  // the CPU alone computes these
      const bool with_gradients = row->differentiable && one.compares_gradients;
      const bool in_f64 = runtime::takes(*row, one.inputs, DType::f64);
      // Sums of a few thousand f32 numbers in another order.
      group.both(device, row->name + ", " + one.name, of_largest(5e-5), [&](DType type) {
        return runtime::case_results(*row, one, in_f64 ? type : DType::f32, with_gradients);
      });
    }
  return group.take();
}

Findings check_products(Device device) {
  struct Case {
    Shape a, b;
    bool transpose_a, transpose_b;
  };
  const Case cases[] = {{{1, 1}, {1, 1}, false, false},
                        {{17, 33}, {33, 9}, false, false},
                        {{64, 64}, {64, 64}, false, false},
                        {{130, 70}, {130, 129}, true, false},
                        {{65, 257}, {31, 257}, false, true},
                        {{40, 30}, {50, 40}, true, true},
                        {{3, 1, 20, 8}, {5, 8, 11}, false, false},
                        {{300}, {300}, false, false},
                        {{7, 300}, {300}, false, false},
                        {{256, 1024}, {1024, 192}, false, false},
                        {{0, 5}, {5, 3}, false, false},
                        {{4, 0}, {0, 3}, false, false}};
  Group group;
  for (const Case& c : cases)
    group.both(
        device,
        fmt::format("{}{} x {}{}", c.a.to_string(), c.transpose_a ? "^T" : "", c.b.to_string(),
                    c.transpose_b ? "^T" : ""),
        of_largest(1e-5), [&](DType type) {
          const Tensor a = random(c.a, type, 1), b = random(c.b, type, 2);
          return with_gradients(matmul(c.transpose_a ? transpose(a) : a, c.transpose_b ? transpose(b) : b), {a, b});
        });
  return group.take();
}

// ---- Special values, sizes, random numbers, training -------------------------------------------------------------------

Findings check_special_values(Device device) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> specials = {0.0,  -0.0,      1,          -1,   2.5,
                                        -0.5, kInfinity, -kInfinity, kNaN, std::numeric_limits<float>::max()};
  std::vector<double> left, right;
  for (double a : specials)
    for (double b : specials) left.push_back(a), right.push_back(b);
  Group group;
  set_default_device(device);
  const auto count = static_cast<Extent>(left.size());
  for (const char* name :
       {"abs",   "neg",        "relu",     "sign",   "floor",      "ceil",    "round",      "trunc",
        "isnan", "isinf",      "isfinite", "square", "sqrt",       "exp",     "log",        "sigmoid",
        "tanh",  "reciprocal", "erf",      "clamp",  "nan_to_num", "signbit", "logical_not"})
    group.run(name, [&] {
      const ops::ElementwiseRow& row = ops::elementwise_row(name);
      const Tensor y = elementwise(name, {runtime::tensor_of(left, {count}, DType::f32)});
      std::vector<double> attributes;
      for (const ops::Attribute& a : row.attributes) attributes.push_back(a.default_value);
      group.compare(name, numbers_of(y), reference(ops::forward(row), {left}, attributes), of_largest(1e-6));
    });
  for (const char* name : {"add", "mul", "div", "maximum", "minimum", "copysign", "eq", "ne", "lt", "le", "gt", "ge",
                           "logical_and", "fmax", "fmin", "logaddexp"})
    group.run(name, [&] {
      const ops::ElementwiseRow& row = ops::elementwise_row(name);
      const Tensor y = elementwise(
          name, {runtime::tensor_of(left, {count}, DType::f32), runtime::tensor_of(right, {count}, DType::f32)});
      std::vector<double> attributes;
      for (const ops::Attribute& a : row.attributes) attributes.push_back(a.default_value);
      group.compare(name, numbers_of(y), reference(ops::forward(row), {left, right}, attributes), of_largest(1e-6));
    });
  for (const char* name : {"sum", "amax", "amin", "argmax", "argmin", "any", "all", "count_nonzero", "logsumexp"})
    group.both(device, name, of_largest(1e-6), [&](DType t) {
      return Tensors{reduce(name, runtime::tensor_of(left, {10, 10}, t), {1})};
    });
  return group.take();
}

Findings check_sizes(Device device) {
  Group group;
  set_default_device(device);
  // The last ones need more than 65,535 workgroups of 256.
  for (Extent n : {0, 1, 2, 63, 64, 65, 255, 257, 65535, 65537, 1 << 20, (1 << 24) + 259})
    group.run(fmt::to_string(n), [&] {
      const Tensor y = elementwise("bitwise_and", {arange(n) * 3.0 + 1.0, full({}, 1023, DType::i32)});
      double wanted = 0;
      for (Extent i = 0; i < n; ++i) wanted += static_cast<double>((3 * i + 1) & 1023);
      // The sum wraps as i32 does.
      const auto wrapped = static_cast<double>(
          static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(wanted))));
      group.compare(fmt::to_string(n), numbers_of(sum(y)), {wrapped}, exactly);
      if (n > 0)
        group.compare(fmt::format("{}, last element", n), numbers_of(slice(y, 0, -1)),
                      {static_cast<double>((3 * (n - 1) + 1) & 1023)}, exactly);
    });
  return group.take();
}

Findings check_random(Device device) {
  Group group;
  group.run("rand", [&] {
    auto draw = [](DType) {
      manual_seed(7);
      return Tensors{rand({1000}), rand({10, 100}, -1, 1), dropout(ones({1000}), 0.3)};
    };
    const auto got = Group::values(device, DType::f32, draw), wanted = Group::values(kCpu, DType::f32, draw);
    for (std::size_t i = 0; i < got.size(); ++i)
      group.compare(fmt::format("draw {}", i + 1), got[i], wanted[i], of_largest(1e-7));
  });
  group.run("randn", [&] {
    auto draw = [](DType) {
      manual_seed(7);
      return Tensors{randn({1000})};
    };
    group.compare("randn", Group::values(device, DType::f32, draw)[0], Group::values(kCpu, DType::f32, draw)[0],
                  of_largest(1e-5));
  });
  return group.take();
}

// The losses of a small network that learns a curve.
Tensors trained(DType type, bool compiled) {
  Variable w1(random({1, 16}, type, 1), "w1"), b1(zeros({16}, type), "b1"),
      w2(random({16, 1}, type, 2, -0.5, 0.5), "w2");
  const std::vector<Variable> parameters = {w1, b1, w2};
  optim::AdamW optimizer(parameters, {.learning_rate = 0.01, .weight_decay = 0.1});
  const Tensor x = random({64, 1}, type, 3), y = sin(x * 2.0);
  auto loss_of = [&](std::span<const Tensor> given) {
    const Tensor loss = mse_loss(matmul(tanh(matmul(given[0], w1) + b1), w2), given[1]);
    optimizer.step(grad(loss, optimizer.parameters()));
    return Tensors{loss};
  };
  const Tensors inputs = {x, y};
  Compiled step(loss_of);
  Tensors losses;
  for (int i = 0; i < 20; ++i) {
    losses.push_back(compiled ? step(inputs)[0] : loss_of(inputs)[0]);
    losses.back().eval();
  }
  losses.insert(losses.end(), {w1.value(), b1.value(), w2.value()});
  return losses;
}

Findings check_training(Device device) {
  Group group;
  for (bool compiled : {false, true})
    group.both(device, compiled ? "compiled" : "step by step", of_largest(1e-4),
               [&](DType type) { return trained(type, compiled); });
  return group.take();
}

}  // namespace

std::span<const CheckGroup> check_groups() {
  static constexpr CheckGroup kGroups[] = {
      {"elementwise ops", check_rows},
      {"their gradients", check_row_gradients},
      {"integers and bools", check_integer_rows},
      {"reductions and gradients", check_reductions},
      {"matrix products", check_products},
      {"all other ops and gradients", check_cases},
      {"NaN, infinity, zeros", check_special_values},
      {"sizes from 0 to 16 million", check_sizes},
      {"random numbers", check_random},
      {"training", check_training},
  };
  return kGroups;
}

}  // namespace weft::cli

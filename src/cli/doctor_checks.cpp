#include "cli/doctor_checks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ops/table.hpp"
#include "tensor/element.hpp"
#include "weft/weft.hpp"

namespace weft::cli {
namespace {

using Tensors = std::vector<Tensor>;

// ---- Inputs: the same numbers in every dtype, on the default device ----------------------------------------------------

std::vector<double> random_numbers(Extent count, double lo, double hi, std::uint32_t seed) {
  std::vector<double> values;
  for (Extent i = 0; i < count; ++i) {
    // A multiply-xorshift hash is random enough for inputs.
    std::uint64_t h = (static_cast<std::uint64_t>(seed) << 32 | static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
    const double unit = static_cast<double>((h ^ h >> 32) >> 40) * 0x1p-24;
    values.push_back(static_cast<float>(lo + (hi - lo) * unit));
  }
  return values;
}

Tensor made(const std::vector<double>& values, const Shape& shape, DType type) {
  const std::size_t size = size_bytes(type);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) write_element(type, values[i], bytes.data() + i * size);
  return tensor_from_bytes(bytes.data(), shape, type);
}

Tensor random(const Shape& shape, DType type, std::uint32_t seed, double lo = -2, double hi = 2) {
  return made(random_numbers(shape.numel(), lo, hi, seed), shape, type);
}

std::vector<double> numbers_of(const Tensor& t) {
  const std::size_t size = size_bytes(t.dtype());
  std::vector<std::byte> bytes(static_cast<std::size_t>(t.numel()) * size);
  t.copy_to(bytes.data(), bytes.size());
  std::vector<double> numbers;
  for (std::size_t at = 0; at < bytes.size(); at += size) numbers.push_back(read_element(t.dtype(), bytes.data() + at));
  return numbers;
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

  // Runs a case; what it throws is its failure, except the loss of the device.
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
    // What overflows f32 alone is right as an infinity.
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
  // A GPU's own functions may be a little less exact than what the rows ask of the CPU.
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

Findings check_views(Device device) {
  struct Case {
    const char* name;
    Tensor (*f)(const Tensor&);
  };
  static constexpr Case kCases[] = {
      {"reshape",
       [](const Tensor& x) {
         return reshape(x, {7, -1}) * 1.0;
       }},
      {"permute",
       [](const Tensor& x) {
         return permute(x, {2, 0, 1}) * 2.0;
       }},
      {"transpose", [](const Tensor& x) { return transpose(x, 0, 2); }},
      {"expand",
       [](const Tensor& x) {
         return expand(unsqueeze(x, 1), {6, 3, 7, 5});
       }},
      {"slice", [](const Tensor& x) { return slice(x, 1, -2, -7, -2); }},
      {"select", [](const Tensor& x) { return select(x, 0, -1); }},
      {"flip",
       [](const Tensor& x) {
         return flip(x, {0, 2});
       }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {{1, 0}, {0, 2}, {3, 1}});
       }},
      {"concat",
       [](const Tensor& x) {
         const Tensor parts[] = {x, flip(x, {1}), slice(x, 1, 2, 4)};
         return concat(parts, 1);
       }},
      {"stack",
       [](const Tensor& x) {
         const Tensor parts[] = {x, x * 2.0};
         return stack(parts, -1);
       }},
      {"tril", [](const Tensor& x) { return tril(x, -1); }},
      {"triu", [](const Tensor& x) { return triu(x, 1); }},
      {"take_along_axis", [](const Tensor& x) { return take_along_axis(x, argmax(x, 1, {.keepdims = true}), 1); }},
      {"embedding",
       [](const Tensor& x) {
         return embedding(reshape(x, {30, 7}), made({3, 29, 0, 3}, {2, 2}, DType::i32));
       }},
      {"scatter_add",
       [](const Tensor& x) {
         return scatter_add(made({2, 0, 2, 1, 2, 0}, {6}, DType::i32), x, 4);
       }},
  };
  Group group;
  // Sums of a few numbers in the gradients need not be exact.
  for (const Case& c : kCases)
    group.both(device, c.name, of_largest(1e-6), [&](DType type) {
      const Tensor x = random({6, 7, 5}, type, 1);
      return with_gradients(c.f(x), {x});
    });
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

Findings check_composites(Device device) {
  Group group;
  const Allowance allowed = of_largest(2e-5);
  const Shape shape{6, 9, 50};
  auto x_of = [&](DType type) { return random(shape, type, 1, -4, 4); };
  group.both(device, "softmax", allowed, [&](DType t) {
    const Tensor x = x_of(t);
    return with_gradients(softmax(x), {x});
  });
  group.both(device, "softmax over axis 1", allowed, [&](DType t) {
    const Tensor x = x_of(t);
    return with_gradients(softmax(x, 1), {x});
  });
  group.both(device, "log_softmax", allowed, [&](DType t) {
    const Tensor x = x_of(t);
    return with_gradients(log_softmax(x), {x});
  });
  group.both(device, "layer_norm", allowed, [&](DType t) {
    const Tensor x = x_of(t), w = random({50}, t, 2), b = random({50}, t, 3);
    return with_gradients(layer_norm(x, w, b), {x, w, b});
  });
  group.both(device, "rms_norm", allowed, [&](DType t) {
    const Tensor x = x_of(t), w = random({50}, t, 2);
    return with_gradients(rms_norm(x, w), {x, w});
  });
  group.both(device, "cross_entropy", allowed, [&](DType t) {
    const Tensor x = random({40, 65}, t, 1, -4, 4);
    std::vector<double> targets = random_numbers(40, 0, 65, 2);
    targets[7] = targets[30] = -100;
    return with_gradients(cross_entropy(x, made(targets, {40}, DType::i32)), {x});
  });
  group.both(device, "mse_loss", allowed, [&](DType t) {
    const Tensor x = x_of(t), y = random(shape, t, 2);
    return with_gradients(mse_loss(x, y), {x, y});
  });
  group.both(device, "rope", allowed, [&](DType t) {
    const Tensor x = x_of(t);
    return with_gradients(rope(x, 10000, 3), {x});
  });
  group.both(device, "swiglu", allowed, [&](DType t) {
    const Tensor x = x_of(t), y = random(shape, t, 2);
    return with_gradients(swiglu(x, y), {x, y});
  });
  group.both(device, "linear", allowed, [&](DType t) {
    const Tensor x = x_of(t), w = random({33, 50}, t, 2), b = random({33}, t, 3);
    return with_gradients(gelu(linear(x, w, b)), {x, w, b});
  });
  return group.take();
}

Findings check_attention(Device device) {
  struct Case {
    Extent batch, heads, key_heads, queries, keys, width;
    bool causal;
  };
  static constexpr Case kCases[] = {{2, 3, 3, 17, 17, 8, true},   {1, 4, 2, 64, 64, 32, true},
                                    {2, 2, 2, 65, 65, 64, false}, {1, 4, 1, 5, 33, 16, true},
                                    {1, 1, 1, 1, 1, 4, true},     {1, 2, 2, 130, 70, 24, false}};
  Group group;
  for (const Case& c : kCases)
    group.both(device,
               fmt::format("{} heads, {} queries, {} keys{}", c.heads, c.queries, c.keys, c.causal ? ", causal" : ""),
               of_largest(5e-5), [&](DType t) {
                 const Tensor q = random({c.batch, c.heads, c.queries, c.width}, t, 1),
                              k = random({c.batch, c.key_heads, c.keys, c.width}, t, 2),
                              v = random({c.batch, c.key_heads, c.keys, c.width}, t, 3);
                 return with_gradients(attention(q, k, v, c.causal), {q, k, v});
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
      const Tensor y = elementwise(name, {made(left, {count}, DType::f32)});
      std::vector<double> attributes;
      for (const ops::Attribute& a : row.attributes) attributes.push_back(a.default_value);
      group.compare(name, numbers_of(y), reference(ops::forward(row), {left}, attributes), of_largest(1e-6));
    });
  for (const char* name : {"add", "mul", "div", "maximum", "minimum", "copysign", "eq", "ne", "lt", "le", "gt", "ge",
                           "logical_and", "fmax", "fmin", "logaddexp"})
    group.run(name, [&] {
      const ops::ElementwiseRow& row = ops::elementwise_row(name);
      const Tensor y = elementwise(name, {made(left, {count}, DType::f32), made(right, {count}, DType::f32)});
      std::vector<double> attributes;
      for (const ops::Attribute& a : row.attributes) attributes.push_back(a.default_value);
      group.compare(name, numbers_of(y), reference(ops::forward(row), {left, right}, attributes), of_largest(1e-6));
    });
  for (const char* name : {"sum", "amax", "amin", "argmax", "argmin", "any", "all", "count_nonzero", "logsumexp"})
    group.both(device, name, of_largest(1e-6), [&](DType t) {
      return Tensors{reduce(name, made(left, {10, 10}, t), {1})};
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

// Losses of a small network on a curve.
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
      {"views and gathers", check_views},
      {"matrix products", check_products},
      {"composites and gradients", check_composites},
      {"attention and gradients", check_attention},
      {"NaN, infinity, zeros", check_special_values},
      {"sizes from 0 to 16 million", check_sizes},
      {"random numbers", check_random},
      {"training", check_training},
  };
  return kGroups;
}

}  // namespace weft::cli

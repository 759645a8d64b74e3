#include "weft/gradcheck.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "runtime/op_cases.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using runtime::numbers_of;
using runtime::random_numbers;
using runtime::tensor_of;

std::string place_of(Extent element, const Shape& shape) {
  std::vector<Extent> place(shape.size());
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    place[static_cast<std::size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

class Check {
 public:
  Check(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options, std::string order)
      : f_(f), inputs_(inputs), options_(options), order_(std::move(order)) {}

  GradcheckReport run() {
    const Pullback made = vjp(f_, inputs_);
    for (const Tensor& y : made.results) results_.push_back(is_float(y.dtype()) ? y : Tensor());
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].dtype() == DType::f64) differences(i);
    backward(made);
    if (options_.forward) forward();
    return report_;
  }

 private:
  // d result r / d input i by differences: [input's element][result's element].
  std::vector<std::vector<double>>& slopes(std::size_t i, std::size_t r) { return slopes_[i * results_.size() + r]; }

  void differences(std::size_t i) {
    slopes_.resize(inputs_.size() * results_.size());
    const std::vector<double> at = numbers_of(inputs_[i]);
    const auto results_at = [&](std::size_t element, double by) {
      std::vector<double> moved = at;
      moved[element] += by;
      std::vector<Tensor> inputs = inputs_;
      inputs[i] = tensor_of(moved, inputs_[i].shape(), DType::f64);
      return f_(inputs);
    };
    for (std::size_t element = 0; element < at.size(); ++element) {
      const std::vector<Tensor> above = results_at(element, options_.step), below = results_at(element, -options_.step);
      for (std::size_t r = 0; r < results_.size(); ++r) {
        if (!results_[r].defined()) continue;
        const std::vector<double> high = numbers_of(above.at(r)), low = numbers_of(below.at(r));
        std::vector<double> slope;
        for (std::size_t o = 0; o < high.size(); ++o) slope.push_back((high[o] - low[o]) / (2 * options_.step));
        slopes(i, r).push_back(std::move(slope));
      }
    }
  }

  void backward(const Pullback& made) {
    for (std::size_t r = 0; r < results_.size(); ++r) {
      if (!results_[r].defined()) continue;
      const Tensor& y = results_[r];
      for (Extent o = 0; o < y.numel(); ++o) {
        std::vector<double> unit(static_cast<std::size_t>(y.numel()), 0);
        unit[static_cast<std::size_t>(o)] = 1;
        std::vector<Tensor> seeds(results_.size());
        seeds[r] = tensor_of(unit, y.shape(), y.dtype());
        const std::vector<Tensor> gradients = made.gradients(seeds);
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
          if (inputs_[i].dtype() != DType::f64) continue;
          const std::vector<double> row = numbers_of(gradients[i]);
          for (std::size_t e = 0; e < row.size(); ++e)
            compare(i, e, r, static_cast<std::size_t>(o), row[e], "the gradient");
        }
      }
    }
  }

  void forward() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].dtype() != DType::f64) continue;
      for (Extent e = 0; e < inputs_[i].numel(); ++e) {
        std::vector<double> unit(static_cast<std::size_t>(inputs_[i].numel()), 0);
        unit[static_cast<std::size_t>(e)] = 1;
        std::vector<Tensor> tangents(inputs_.size());
        tangents[i] = tensor_of(unit, inputs_[i].shape(), DType::f64);
        const Pushforward made = jvp(f_, inputs_, tangents);
        for (std::size_t r = 0; r < results_.size(); ++r) {
          if (!results_[r].defined()) continue;
          const std::vector<double> column = numbers_of(made.tangents[r]);
          for (std::size_t o = 0; o < column.size(); ++o)
            compare(i, static_cast<std::size_t>(e), r, o, column[o], "jvp");
        }
      }
    }
  }

  void compare(std::size_t i, std::size_t e, std::size_t r, std::size_t o, double computed, const char* by) {
    const double slope = slopes(i, r)[e][o], difference = std::abs(slope - computed);
    if (difference > report_.worst || std::isnan(difference)) report_.worst = difference;
    if (difference <= options_.absolute + options_.relative * std::abs(slope) || !report_.agrees) return;
    report_.agrees = false;
    report_.message = fmt::format(
        "gradcheck: {}result {}, element {}, with respect to input {}, element {}: {} by differences, {} by {}", order_,
        r, place_of(static_cast<Extent>(o), results_[r].shape()), i,
        place_of(static_cast<Extent>(e), inputs_[i].shape()), slope, computed, by);
  }

  const TensorFunction& f_;
  const std::vector<Tensor>& inputs_;
  const GradcheckOptions& options_;
  const std::string order_;
  std::vector<Tensor> results_;  // undefined for those that are not floats
  std::vector<std::vector<std::vector<double>>> slopes_;
  GradcheckReport report_;
};

}  // namespace

GradcheckReport gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options,
                          Where) {
  if (!(options.step > 0 && options.relative > 0 && options.absolute > 0))
    throw UsageError("gradcheck: the step and the tolerances must be positive");
  bool any = false;
  for (const Tensor& x : inputs) {
    if (!x.defined()) throw UsageError("gradcheck: an input has no value");
    any |= x.dtype() == DType::f64;
  }
  if (!any) throw UsageError("gradcheck: no input is f64, in which differences are exact enough; cast one");
  GradcheckReport report = Check(f, inputs, options, "").run();
  if (!report.agrees || !options.second_order) return report;
  const TensorFunction gradients = [&](std::span<const Tensor> in) {
    const Pullback made = vjp(f, in);
    std::vector<Tensor> seeds;
    for (const Tensor& y : made.results)
      seeds.push_back(is_float(y.dtype()) ? tensor_of(random_numbers(y.numel(), 0.5, 1.5, 7), y.shape(), y.dtype())
                                          : Tensor());
    std::vector<Tensor> list;
    const std::vector<Tensor> all = made.gradients(seeds);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (in[i].dtype() == DType::f64) list.push_back(all[i]);
    return list;
  };
  const GradcheckReport second = Check(gradients, inputs, options, "second order, ").run();
  if (!second.agrees) return second;
  report.worst = std::max(report.worst, second.worst);
  return report;
}

}  // namespace weft

// A small tensor engine from nothing: lazy values, ops as rows, gradients as graphs, fused kernels, and a network that
// learns with them. docs/lesson.md explains it part by part.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

// ---- 1. Values ------------------------------------------------------------------------------------------------------

struct Node;
using Value = std::shared_ptr<const Node>;

// A matrix that is known by how it is made. Its elements come when a program runs.
struct Node {
  std::string op;  // "data", "number", a view ("expand", "transpose"), "matmul", "sum", or the name of a row
  std::vector<Value> inputs;
  int rows = 1, columns = 1;
  mutable std::vector<float> elements;  // row by row; empty until computed
};

// The same op on the same inputs is the same node.
Value make(const std::string& op, const std::vector<Value>& inputs, int rows, int columns, float number = 0) {
  using Key = std::tuple<std::string, std::vector<const Node*>, int, int, float>;
  static std::map<Key, std::weak_ptr<const Node>> known;
  Key key{op, {}, rows, columns, number};
  for (const Value& input : inputs) std::get<1>(key).push_back(input.get());
  if (const Value same = known[key].lock()) return same;
  const auto made = std::make_shared<const Node>(Node{op, inputs, rows, columns, {}});
  if (op == "number") made->elements = {number};
  known[key] = made;
  return made;
}

Value data(std::vector<float> elements, int rows, int columns) {
  return std::make_shared<const Node>(Node{"data", {}, rows, columns, std::move(elements)});
}

Value number(float value, int rows = 1, int columns = 1) { return make("number", {}, rows, columns, value); }

Value expand(const Value& x, int rows, int columns) {
  if (x->rows == rows && x->columns == columns) return x;
  if (x->op == "number") return number(x->elements[0], rows, columns);
  if ((x->rows != rows && x->rows != 1) || (x->columns != columns && x->columns != 1))
    throw std::invalid_argument("expand: only an extent of 1 can be repeated");
  return make("expand", {x}, rows, columns);
}

Value transpose(const Value& x) { return make("transpose", {x}, x->columns, x->rows); }

Value matmul(const Value& x, const Value& y) {
  if (x->columns != y->rows) throw std::invalid_argument("matmul: columns of x differ from rows of y");
  return make("matmul", {x, y}, x->rows, y->columns);
}

// Sums over the axes whose extent becomes 1.
Value sum(const Value& x, int rows = 1, int columns = 1) {
  return x->rows == rows && x->columns == columns ? x : make("sum", {x}, rows, columns);
}

// ---- 2. Elementwise ops are rows ------------------------------------------------------------------------------------

// A function of one element, as a function of many.
template <auto f>
void each(const float* x, const float* y, float* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = f(x[i], y[i]);
}

struct Row {
  const char* name;
  void (*compute)(const float* x, const float* y, float* out, int count);
  const char *dx, *dy;  // what flows back to x and to y when g flows in; dy is null where there is no y
};

const Row kRows[] = {
    {"add", each<[](float x, float y) { return x + y; }>, "g", "g"},
    {"sub", each<[](float x, float y) { return x - y; }>, "g", "-g"},
    {"mul", each<[](float x, float y) { return x * y; }>, "g * y", "g * x"},
    {"div", each<[](float x, float y) { return x / y; }>, "g / y", "-g * x / (y * y)"},
    {"neg", each<[](float x, float) { return -x; }>, "-g", nullptr},
    {"exp", each<[](float x, float) { return std::exp(x); }>, "g * exp(x)", nullptr},
    {"log", each<[](float x, float) { return std::log(x); }>, "g / x", nullptr},
    {"tanh", each<[](float x, float) { return std::tanh(x); }>, "g * (1 - tanh(x) * tanh(x))", nullptr},
};

const Row* row_of(const std::string& op) {
  for (const Row& row : kRows)
    if (op == row.name) return &row;
  return nullptr;
}

// A row applied to values, which broadcast.
Value apply(const std::string& op, const std::vector<Value>& inputs) {
  const Row* row = row_of(op);
  if (!row || inputs.size() != (row->dy ? 2 : 1)) throw std::invalid_argument(op + ": no such op of so many inputs");
  if (op == "mul" && inputs[0]->op == "number" && inputs[0]->elements[0] == 1) return inputs[1];  // a rewrite: 1 x = x
  int rows = 1, columns = 1;
  for (const Value& x : inputs) rows = std::max(rows, x->rows), columns = std::max(columns, x->columns);
  std::vector<Value> same;
  for (const Value& x : inputs) same.push_back(expand(x, rows, columns));
  return make(op, same, rows, columns);
}

// ---- 3. The expression language -------------------------------------------------------------------------------------

using Names = std::map<std::string, Value>;

// Reads a text and builds what it says: sums of products of numbers, names, calls and parentheses.
class Parser {
 public:
  Parser(const std::string& text, const Names& names) : text_(text), names_(names) {}
  Value all() {
    const Value value = sum_of_products();
    if (next() != '\0') fail("the end");
    return value;
  }

 private:
  Value sum_of_products() {
    Value left = product();
    while (next() == '+' || next() == '-') {
      const char* op = text_[at_++] == '+' ? "add" : "sub";
      left = apply(op, {left, product()});
    }
    return left;
  }
  Value product() {
    Value left = factor();
    while (next() == '*' || next() == '/') {
      const char* op = text_[at_++] == '*' ? "mul" : "div";
      left = apply(op, {left, factor()});
    }
    return left;
  }
  Value factor() {
    if (take('-')) return apply("neg", {factor()});
    if (take('(')) return closed(sum_of_products());
    const std::size_t begin = at_;
    if (std::isdigit(text_[at_])) {
      while (std::isdigit(text_[at_]) || text_[at_] == '.') ++at_;
      return number(std::strtof(text_.c_str() + begin, nullptr));
    }
    while (std::isalpha(text_[at_])) ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    if (take('(')) return apply(name, {closed(sum_of_products())});
    const auto found = names_.find(name);
    if (found == names_.end()) fail("a name that is known");
    return found->second;
  }
  Value closed(const Value& value) {
    if (!take(')')) fail("\")\"");
    return value;
  }
  char next() {
    while (text_[at_] == ' ') ++at_;
    return text_[at_];
  }
  bool take(char wanted) { return next() == wanted ? (++at_, true) : false; }
  [[noreturn]] void fail(const std::string& expected) {
    throw std::invalid_argument(text_ + "\n" + std::string(at_, ' ') + "^ expected " + expected);
  }

  const std::string& text_;
  const Names& names_;
  std::size_t at_ = 0;
};

Value formula(const std::string& text, const Names& names) { return Parser(text, names).all(); }

// ---- 4. Gradients are graphs ----------------------------------------------------------------------------------------

// What `value` is made of, each after its inputs.
void collect(const Value& value, std::vector<Value>& order, std::set<const Node*>& seen) {
  if (!seen.insert(value.get()).second) return;
  for (const Value& input : value->inputs) collect(input, order, seen);
  order.push_back(value);
}

// d output / d each of `wanted`; output has one element.
std::vector<Value> gradients(const Value& output, const std::vector<Value>& wanted) {
  std::vector<Value> order;
  std::set<const Node*> seen;
  collect(output, order, seen);
  std::map<const Node*, Value> gradient{{output.get(), number(1)}};
  const auto add = [&](const Value& x, const Value& g) {
    Value& so_far = gradient[x.get()];
    so_far = so_far ? apply("add", {so_far, g}) : g;
  };
  for (auto n = order.rbegin(); n != order.rend(); ++n) {
    const Node& node = **n;
    if (node.inputs.empty()) continue;
    const Value g = gradient[n->get()], x = node.inputs[0], y = node.inputs.back();
    if (node.op == "expand") add(x, sum(g, x->rows, x->columns));
    if (node.op == "sum") add(x, expand(g, x->rows, x->columns));
    if (node.op == "transpose") add(x, transpose(g));
    if (node.op == "matmul") add(x, matmul(g, transpose(y))), add(y, matmul(transpose(x), g));
    if (const Row* row = row_of(node.op)) {
      add(x, formula(row->dx, {{"x", x}, {"y", y}, {"g", g}}));
      if (row->dy) add(y, formula(row->dy, {{"x", x}, {"y", y}, {"g", g}}));
    }
  }
  std::vector<Value> result;
  for (const Value& x : wanted) {
    const Value g = gradient[x.get()];
    result.push_back(g ? expand(g, x->rows, x->columns) : number(0, x->rows, x->columns));
  }
  return result;
}

// ---- 5. A program: fewer, larger kernels ----------------------------------------------------------------------------

class Program {
 public:
  // What computes the results, as kernels in the order they run.
  explicit Program(std::vector<Value> results) : results_(std::move(results)) {
    std::set<const Node*> seen;
    for (const Value& result : results_) collect(result, order_, seen);
    choose_stored();
    for (const Value& value : order_)
      if (stored_.contains(value.get())) add_kernel(*value);
  }

  // Computes the results into their elements. The plan stays; what changes is the elements of "data".
  void run() const {
    for (const Kernel& kernel : kernels_) kernel.target->op == "matmul" ? multiply(kernel) : loop(kernel);
  }
  std::size_t node_count() const { return order_.size(); }
  std::size_t kernel_count() const { return kernels_.size(); }

 private:
  // Where a value lies: element (i, j) at elements[i * row_stride + j * column_stride] of `memory`.
  struct Access {
    const Node* memory = nullptr;
    int row_stride = 0, column_stride = 0;
  };
  // One value of a kernel: loaded, or computed from earlier steps.
  struct Step {
    const Row* row = nullptr;
    int x = 0, y = 0;
    Access load = {};
  };
  struct Kernel {
    const Node* target = nullptr;
    std::vector<Step> steps = {};
  };

  // Memory goes to results, products and sums, to what a product or a view reads, to what two kernels read. The rest
  // lives inside the one kernel that reads it.
  void choose_stored() {
    std::set<const Node*> wanted;
    std::map<const Node*, std::set<const Node*>> readers;  // kernels, by the node that each one stores
    for (const Value& result : results_) wanted.insert(result.get());
    for (auto n = order_.rbegin(); n != order_.rend(); ++n) {
      const Node* node = n->get();
      const bool is_row = row_of(node->op), is_kernel = node->op == "matmul" || node->op == "sum";
      if (is_kernel || (is_row && (wanted.contains(node) || readers[node].size() > 1))) stored_.insert(node);
      for (const Value& input : node->inputs)
        if (!is_row && node->op != "sum")
          wanted.insert(input.get());
        else
          readers[input.get()].insert(stored_.contains(node) ? node : *readers[node].begin());
    }
  }

  // Views are arithmetic on strides.
  Access access_of(const Node& node) const {
    if (node.op == "number") return {&node, 0, 0};
    if (node.op != "transpose" && node.op != "expand") return {&node, node.columns, 1};
    const Node& x = *node.inputs[0];
    const Access inner = access_of(x);
    if (node.op == "transpose") return {inner.memory, inner.column_stride, inner.row_stride};
    return {inner.memory, x.rows == 1 ? 0 : inner.row_stride, x.columns == 1 ? 0 : inner.column_stride};
  }

  void add_kernel(const Node& target) {
    target.elements.assign(static_cast<std::size_t>(target.rows) * target.columns, 0);
    Kernel kernel{&target};
    std::map<const Node*, int> done;
    if (target.op == "matmul")
      for (const Value& input : target.inputs) kernel.steps.push_back({.load = access_of(*input)});
    else if (target.op == "sum")
      emit(*target.inputs[0], kernel, done);
    else
      emit(target, kernel, done);
    kernels_.push_back(kernel);
  }

  int emit(const Node& node, Kernel& kernel, std::map<const Node*, int>& done) const {
    if (const auto found = done.find(&node); found != done.end()) return found->second;
    Step step;
    if (row_of(node.op) && (&node == kernel.target || !stored_.contains(&node))) {
      step.row = row_of(node.op);
      step.x = emit(*node.inputs[0], kernel, done);
      step.y = emit(*node.inputs.back(), kernel, done);
    } else {
      step.load = access_of(node);
    }
    kernel.steps.push_back(step);
    return done[&node] = static_cast<int>(kernel.steps.size()) - 1;
  }

  // Every step over a block of a row before the next step: intermediate values never leave the cache.
  static void loop(const Kernel& kernel) {
    constexpr int kBlock = 256;
    const Node& target = *kernel.target;
    const bool sums = target.op == "sum";
    const Node& frame = sums ? *target.inputs[0] : target;
    if (sums) std::fill(target.elements.begin(), target.elements.end(), 0.0f);
    std::vector<std::array<float, kBlock>> registers(kernel.steps.size());
    for (int i = 0; i < frame.rows; ++i)
      for (int begin = 0; begin < frame.columns; begin += kBlock) {
        const int count = std::min(kBlock, frame.columns - begin);
        for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
          const auto& [row, x, y, load] = kernel.steps[s];
          float* out = registers[s].data();
          if (row)
            row->compute(registers[x].data(), registers[y].data(), out, count);
          else
            for (int j = 0; j < count; ++j)
              out[j] = load.memory->elements[i * load.row_stride + (begin + j) * load.column_stride];
        }
        for (int j = 0; j < count; ++j) {
          const int row = target.rows == 1 ? 0 : i, column = target.columns == 1 ? 0 : begin + j;
          float& element = target.elements[row * target.columns + column];
          element = registers.back()[j] + (sums ? element : 0);
        }
      }
  }

  static void multiply(const Kernel& kernel) {
    const Node& target = *kernel.target;
    const Access &a = kernel.steps[0].load, &b = kernel.steps[1].load;
    const int depth = target.inputs[0]->columns;
    for (int i = 0; i < target.rows; ++i)
      for (int j = 0; j < target.columns; ++j) {
        float total = 0;
        for (int k = 0; k < depth; ++k)
          total += a.memory->elements[i * a.row_stride + k * a.column_stride] *
                   b.memory->elements[k * b.row_stride + j * b.column_stride];
        target.elements[i * target.columns + j] = total;
      }
  }

  std::vector<Value> results_, order_;
  std::set<const Node*> stored_;
  std::vector<Kernel> kernels_;
};

// ---- 6. A network that learns ---------------------------------------------------------------------------------------

// The second derivative of tanh is -2 tanh(x) (1 - tanh(x)^2).
bool second_derivative_is_right() {
  const Value x = data({-1, 0.5f, 2}, 1, 3);
  const Value slope = gradients(sum(formula("tanh(x)", {{"x", x}})), {x})[0];
  const Value bend = gradients(sum(slope), {x})[0];
  const Value expected = formula("-2 * tanh(x) * (1 - tanh(x) * tanh(x))", {{"x", x}});
  Program({bend, expected}).run();
  float worst = 0;
  for (int i = 0; i < 3; ++i) worst = std::max(worst, std::fabs(bend->elements[i] - expected->elements[i]));
  std::printf("second derivative of tanh: off by %.1e at most\n", worst);
  return worst < 1e-6f;
}

int main() {
  if (!second_derivative_is_right()) return 1;

  // Points of a square: does one lie inside a circle (1) or not (-1)?
  constexpr int kPoints = 256, kHidden = 16;
  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<float>(random() >> 8) * 0x1p-23f - 1; };  // [-1, 1)
  std::vector<float> points, labels;
  for (int i = 0; i < kPoints; ++i) {
    const float x = draw(), y = draw();
    points.insert(points.end(), {x, y});
    labels.push_back(std::hypot(x, y) < 0.7f ? 1.0f : -1.0f);
  }
  const auto weights = [&](int rows, int columns) {
    std::vector<float> elements(static_cast<std::size_t>(rows) * columns);
    for (float& element : elements) element = 2 * draw();
    return data(elements, rows, columns);
  };
  const Value x = data(points, kPoints, 2), label = data(labels, kPoints, 1), rate = data({0}, 1, 1);
  const std::vector<Value> parameters = {weights(2, kHidden), weights(1, kHidden), weights(kHidden, 1), weights(1, 1)};

  // The network, its loss, and the parameters after a step of gradient descent: all of it is only said, nothing runs.
  const Value hidden = formula("tanh(z + b)", {{"z", matmul(x, parameters[0])}, {"b", parameters[1]}});
  const Value score = formula("z + b", {{"z", matmul(hidden, parameters[2])}, {"b", parameters[3]}});
  const Value each_loss = formula("log(1 + exp(-label * z))", {{"label", label}, {"z", score}});
  const Value loss = formula("s / n", {{"s", sum(each_loss)}, {"n", number(kPoints)}});
  std::vector<Value> results = {loss, score};
  const std::vector<Value> slopes = gradients(loss, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    results.push_back(formula("w - rate * g", {{"w", parameters[i]}, {"rate", rate}, {"g", slopes[i]}}));

  const Program step(results);
  std::printf("%zu nodes became %zu kernels\n", step.node_count(), step.kernel_count());
  constexpr int kSteps = 1000;
  for (int i = 0; i <= kSteps; ++i) {
    rate->elements[0] = 2 * (1 - static_cast<float>(i) / kSteps);
    step.run();
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p]->elements = results[p + 2]->elements;
    if (i % 200 == 0) std::printf("step %4d  loss %.4f\n", i, loss->elements[0]);
  }

  int right = 0;
  for (int i = 0; i < kPoints; ++i) right += (score->elements[i] > 0) == (labels[i] > 0);
  std::printf("%d of %d points are told apart\n", right, kPoints);
  return right > kPoints * 95 / 100 ? 0 : 1;
}

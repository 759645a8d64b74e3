// Uses an installed Weft: its umbrella header and its one library alone.
#include <weft/weft.hpp>

#include <cstdio>

int main() {
  using namespace weft;
  const auto squares = [](const Tensor& x) { return sum(x * x); };
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  const float value = squares(x).item<float>();
  const float slope = sum(grad(squares)(x)).item<float>();
  std::printf("the sum of squares is %g, and of its gradient %g\n", value, slope);
  return value == 14 && slope == 12 ? 0 : 1;
}

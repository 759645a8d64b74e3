// Uses an installed Weft: public headers and the one library alone.
#include <weft/dtype.hpp>
#include <weft/shape.hpp>

#include <cstdio>

int main() {
  const weft::Shape shape{2, 3};
  const auto type = weft::dtype_from_name("f32");
  std::printf("%s of %lld elements\n", shape.to_string().c_str(), static_cast<long long>(shape.numel()));
  return type == weft::DType::f32 && shape.to_string() == "[2, 3]" ? 0 : 1;
}

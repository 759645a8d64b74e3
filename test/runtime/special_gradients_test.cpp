// Gradients of special functions: their digits where terms cancel or vanish, and shaders that software adapters compile in time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/open_device.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test::special_gradients {
namespace {

Tensor call(const std::string& name, const std::vector<Tensor>& inputs) {
  return name == "polygamma2" ? polygamma(inputs[0], 2) : elementwise(name, inputs, {});
}

struct Derivatives {
  const char* op;
  std::vector<double> at;
  std::size_t by;
  double first, second;
};

// With mpmath, in 120 digits.
const Derivatives kDerivatives[] = {
    {"modified_bessel_k0", {0.001}, 0, -999.99623815608555, 1000003.2618448861},
    {"modified_bessel_k0", {1.5}, 0, -0.27738780045684382, 0.39873076295208828},
    {"modified_bessel_k0", {2.5}, 0, -0.073890816347747064, 0.091903879739465011},
    {"modified_bessel_k0", {13.0}, 0, -8.0785884122023473e-7, 8.4059737392822153e-7},
    {"modified_bessel_k0", {40.0}, 0, -8.4971319548610387e-19, 8.605289398971093e-19},
    {"modified_bessel_k0", {600.0}, 0, -1.3569579181128061e-262, 1.3580901275250404e-262},
    {"modified_bessel_k1", {0.001}, 0, -1000003.2618448861, 2000000499.9972097},
    {"modified_bessel_k1", {1.5}, 0, -0.39873076295208828, 0.6664917759612777},
    {"modified_bessel_k1", {2.5}, 0, -0.091903879739465011, 0.1224748988591726},
    {"modified_bessel_k1", {13.0}, 0, -8.4059737392822153e-7, 8.7730040750595731e-7},
    {"modified_bessel_k1", {40.0}, 0, -8.605289398971093e-19, 8.7175748973071041e-19},
    {"modified_bessel_k1", {600.0}, 0, -1.3580901275250404e-262, 1.3592251709862315e-262},
    {"scaled_modified_bessel_k0", {0.001}, 0, -993.96601855669018, 999008.80252195503},
    {"scaled_modified_bessel_k0", {1.5}, 0, -0.2849558202576565, 0.25886560851972233},
    {"scaled_modified_bessel_k0", {2.5}, 0, -0.14062573357977851, 0.078818302403594215},
    {"scaled_modified_bessel_k0", {13.0}, 0, -0.013008924711313798, 0.0014750405934216322},
    {"scaled_modified_bessel_k0", {40.0}, 0, -0.0024543822971353152, 9.148458709020661e-5},
    {"scaled_modified_bessel_k0", {600.0}, 0, -4.2612005236478751e-5, 1.0648573616323537e-7},
    {"scaled_modified_bessel_k0", {100000.0}, 0, -1.9816562176339893e-8, 2.9724768953516337e-13},
    {"scaled_modified_bessel_k0", {1000000000000.0}, 0, -6.2665706865751513e-19, 9.399856029860377e-31},
    {"scaled_modified_bessel_k1", {0.001}, 0, -1000002.7685405117, 2000000494.2970581},
    {"scaled_modified_bessel_k1", {1.5}, 0, -0.54382142877737883, 0.65620017668855377},
    {"scaled_modified_bessel_k1", {2.5}, 0, -0.21944403598337273, 0.15298721981501537},
    {"scaled_modified_bessel_k1", {13.0}, 0, -0.014483965304735431, 0.001753948277407957},
    {"scaled_modified_bessel_k1", {40.0}, 0, -0.0025458668842255219, 9.7168314549452364e-5},
    {"scaled_modified_bessel_k1", {600.0}, 0, -4.2718490972641987e-5, 1.0692924247303584e-7},
    {"scaled_modified_bessel_k1", {100000.0}, 0, -1.9816859424029429e-8, 2.9725512070882414e-13},
    {"scaled_modified_bessel_k1", {1000000000000.0}, 0, -6.2665706865845511e-19, 9.3998560298838766e-31},
    {"i0", {0.001}, 0, 0.00050000006250000261, 0.50000018750001302},
    {"i0", {1.5}, 0, 0.98166642857790759, 0.99227890405428579},
    {"i0", {2.5}, 0, 2.5167162452886984, 2.2831526459346437},
    {"i0", {13.0}, 0, 47502.987358995861, 45790.413631525584},
    {"i0", {40.0}, 0, 14707396163259353.0, 14527089889338416.0},
    {"i0", {600.0}, 0, 6.1411813450668919e+258, 6.1360701016950667e+258},
    {"i1", {0.001}, 0, 0.50000018750001302, 0.00037500005208333562},
    {"i1", {1.5}, 0, 0.99227890405428579, 0.75644334968745377},
    {"i1", {2.5}, 0, 2.2831526459346437, 2.0061297861610327},
    {"i1", {13.0}, 0, 45790.413631525584, 44261.730614316354},
    {"i1", {40.0}, 0, 14527089889338416.0, 14353411038627929.0},
    {"i1", {600.0}, 0, 6.1360701016950667e+258, 6.1309716204011365e+258},
    {"i0e", {0.001}, 0, -0.99850124927116134, 1.4975021861881013},
    {"i0e", {1.5}, 0, -0.14839422163323267, 0.15076218498584822},
    {"i0e", {2.5}, 0, -0.063461792080936185, 0.044289724349365749},
    {"i0e", {13.0}, 0, -0.004388434568867131, 0.00051745381104290552},
    {"i0e", {40.0}, 0, -0.00079605080079326951, 3.0045874725487511e-5},
    {"i0e", {600.0}, 0, -1.3580787966314242e-5, 3.3966152062371076e-8},
    {"i0e", {100000.0}, 0, -6.307854959639557e-9, 9.4618060942702585e-14},
    {"i0e", {1000000000000.0}, 0, -1.9947114020079114e-19, 2.9920671030126151e-31},
    {"i1e", {0.001}, 0, 0.49900093691694, -0.99812674890676543},
    {"i1e", {1.5}, 0, 0.0023679633526155524, -0.054989988367180511},
    {"i1e", {2.5}, 0, -0.019172067731570436, -0.0035673533317349258},
    {"i1e", {13.0}, 0, -0.0038709807578242255, 0.00041565358007367771},
    {"i1e", {40.0}, 0, -0.000766004926067782, 2.8155641597733327e-5},
    {"i1e", {600.0}, 0, -1.3546821814251871e-5, 3.3824567262325562e-8},
    {"i1e", {100000.0}, 0, -6.3077603415786143e-9, 9.461569548526527e-14},
    {"i1e", {1000000000000.0}, 0, -1.9947114020049193e-19, 2.992067103005135e-31},
    {"igamma", {0.3, 0.5}, 1, 0.32936294221710454, -0.79047106132105091},
    {"igamma", {0.3, 80.0}, 1, 2.8078857603218491e-37, -2.8324547607246653e-37},
    {"igamma", {2.5, 0.75}, 1, 0.23079948420818289, 0.23079948420818289},
    {"igamma", {2.5, 200.0}, 1, 2.9445057931518737e-84, -2.9224219997032346e-84},
    {"igamma", {7.9, 0.5}, 1, 1.231864831119562e-6, 1.5767869838330394e-5},
    {"igamma", {7.9, 7.0}, 1, 0.14994513184130739, -0.0021420733120186694},
    {"igamma", {7.9, 600.0}, 1, 9.4923065105922523e-246, -9.3831449857204414e-246},
    {"igamma", {8.1, 0.081}, 1, 2.6595564742773841e-12, 2.3046206040682663e-10},
    {"igamma", {8.1, 9.0}, 1, 0.11918316538160445, -0.025160890469449832},
    {"igamma", {8.1, 300.0}, 1, 3.2281950949904164e-117, -3.1517944777423099e-117},
    {"igamma", {19.9, 0.2}, 1, 5.5771213521962862e-31, 5.2146084643035269e-29},
    {"igamma", {50.0, 51.0}, 1, 0.054678322676999751, -0.0021442479481176373},
    {"igamma", {50.0, 400.0}, 1, 9.9779642973072314e-110, -8.7556636708870956e-110},
    {"igamma", {1000.0, 300.0}, 1, 5.6382544563260602e-221, 1.313713288323972e-220},
    {"igamma", {1000.0, 1800.0}, 1, 4.8141647680548284e-95, -2.1423033217843986e-95},
    {"igamma", {100000.0, 100000.0}, 1, 0.0012615652097053006, -1.2615652097053006e-8},
    {"igamma", {100000.0, 110000.0}, 1, 2.4166502895220523e-207, -2.1971745041372768e-208},
    {"igamma", {7.5, 720.0}, 1, 4.0597701289784374e-298, -4.0231194264251599e-298},
    {"polygamma2", {0.3}, 0, 743.14176465504978, -9883.4685554969897},
    {"polygamma2", {1.0}, 0, 6.4939394022668291, -24.886266123440878},
    {"polygamma2", {5.0}, 0, 0.021427828192755075, -0.0140631913421128},
    {"polygamma2", {40.0}, 0, 3.24414001515635e-5, -2.4633778392772127e-6},
    {"zeta", {2.5, 0.4}, 1, -62.716997023763089, 542.57954204404944},
    {"zeta", {2.5, 30.0}, 1, -0.00021147699418868977, 1.7915780066933358e-5},
    {"zeta", {4.0, -1.5}, 1, -0.052292666584455227, 2563.608088004384},
    {"zeta", {12.0, 3.0}, 1, -7.716420941869761e-6, 3.3224694157953364e-5},
};

TEST(SpecialGradients, HaveAllDigits) {
  for (const DType type : {DType::f64, DType::f32})
    for (const Derivatives& c : kDerivatives) {
      std::vector<Tensor> inputs;
      bool is_exact = true;
      for (const double x : c.at) {
        inputs.push_back(cast(tensor({x}), type));
        is_exact = is_exact && static_cast<float>(x) == x;
      }
      const double least = type == DType::f32 ? std::numeric_limits<float>::min() : 0;
      if (type == DType::f32 && (!is_exact || std::fabs(c.first) < least || std::fabs(c.second) < least ||
                                 std::fabs(c.first) > 1e30 || std::fabs(c.second) > 1e30))
        continue;
      SCOPED_TRACE(fmt::format("{} of {}, {}", c.op, fmt::join(c.at, ", "), name_of(type)));
      const Tensor first = grad(sum(call(c.op, inputs)), inputs[c.by]), second = grad(sum(first), inputs[c.by]);
      // The exponent of a large result of the gamma functions has as many fewer digits.
      const double tolerance = type == DType::f64 ? 1e-12 : 2e-5;
      EXPECT_NEAR(cast(first, DType::f64).item<double>() / c.first, 1, tolerance);
      EXPECT_NEAR(cast(second, DType::f64).item<double>() / c.second, 1, tolerance);
    }
}

// d/dx igammac = -d/dx igamma, also where the value of one of the two rounds to 0 or 1.
TEST(SpecialGradients, OfBothIncompleteGammaFunctionsAreOpposite) {
  for (const auto& [a, x] : {std::pair{0.5, 30.0}, {3.0, 0.25}, {12.0, 40.0}, {500.0, 480.0}}) {
    const Tensor order = tensor({a}), at = tensor({x});
    const Tensor lower = grad(sum(igamma(order, at)), at), upper = grad(sum(igammac(order, at)), at);
    EXPECT_EQ(lower.item<double>(), -upper.item<double>());
    EXPECT_EQ(lower.item<double>(), gamma_density(order, at).item<double>());
  }
}

TEST(SpecialGradients, AtEdges) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto slope = [](const char* name, double x) {
    const Tensor at = tensor({x});
    return grad(sum(call(name, {at})), at).item<double>();
  };
  for (const char* name : {"scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "i0e", "i1e"})
    EXPECT_EQ(slope(name, inf), 0) << name;
  for (const char* name : {"i0e", "i1e"}) EXPECT_EQ(slope(name, -inf), 0) << name;
  EXPECT_EQ(slope("i1", 0), 0.5);
  EXPECT_EQ(slope("i1e", 0), 0.5);
  const auto by_x = [](double a, double x, int order) {
    const Tensor at = tensor({x});
    Tensor y = igamma(tensor({a}), at);
    for (int i = 0; i < order; ++i) y = grad(sum(y), at);
    return y.item<double>();
  };
  EXPECT_EQ(by_x(0.5, 0, 1), inf);
  EXPECT_EQ(by_x(1, 0, 1), 1);
  EXPECT_EQ(by_x(1, 0, 2), -1);
  EXPECT_EQ(by_x(1.5, 0, 1), 0);
  EXPECT_EQ(by_x(1.5, 0, 2), inf);
  EXPECT_EQ(by_x(2, 0, 1), 0);
  EXPECT_EQ(by_x(2, 0, 2), 1);
  EXPECT_EQ(by_x(20, 0, 1), 0);
  EXPECT_EQ(by_x(20, 0, 2), 0);
  EXPECT_EQ(by_x(3, inf, 1), 0);
  EXPECT_EQ(by_x(30, inf, 1), 0);
  EXPECT_EQ(by_x(3, 5000, 2), 0);
}

// Derivatives of polygamma and of zeta are those functions of another order, in every type.
TEST(SpecialGradients, AreTheFunctionsOfAnotherOrder) {
  const Tensor x = tensor({0.7, 1.0, 6.5, -1.25});
  Tensor y = polygamma(x, 1);
  for (int order = 2; order <= 5; ++order) {
    y = grad(sum(y), x);
    EXPECT_EQ(y.to_vector<double>(), polygamma(x, order).to_vector<double>()) << order;
  }
  const Tensor q = tensor({0.3, 2.0, 9.0});
  const Tensor second = grad(sum(grad(sum(zeta(2.5, q)), q)), q);
  const auto got = second.to_vector<double>(), expected = (zeta(4.5, q) * (2.5 * 3.5)).to_vector<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ(got[i], expected[i]);
  // An order of f16 is not rounded again: 9.0078125 + 1 is not a number of f16.
  const Tensor s = cast(tensor({9.0078125}), DType::f16), near = cast(tensor({1.25}), DType::f16);
  const double narrow = cast(grad(cast(sum(zeta(s, near)), DType::f32), near), DType::f64).item<double>();
  const double exact = -9.0078125 * zeta(tensor({10.0078125}), 1.25).item<double>();
  EXPECT_NEAR(narrow / exact, 1, 0x1p-10);
}

// The text of a shader, which software adapters take so long to compile that second gradients of these were left out of tests.
TEST(SpecialGradients, HaveShortShaders) {
  Device device = kCpu;
  open_device("webgpu:0", device);
  if (device == kCpu) return;
  const Tensor a = (arange(8, DType::f32) + 1.5).to(device), x = (arange(8, DType::f32) + 1.25).to(device);
  const auto statements = [](const Tensor& y) {
    const std::string text = explain(y, true);
    int count = 0;
    for (std::size_t at = 0; (at = text.find("let ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const auto second = [](const Tensor& y, const Tensor& by) {
    const Tensor first = grad(sum(y), by);
    return grad(sum(first * first), by);
  };
  EXPECT_LE(statements(second(polygamma(x, 2), x)), 600);
  EXPECT_LE(statements(second(zeta(a, x), x)), 700);
  EXPECT_LE(statements(second(igamma(a, x), x)), 1200);
}

}  // namespace
}  // namespace weft::test::special_gradients

// Functions of the expression language that approximate: error functions and their inverses, gamma functions, Bessel
// functions. The polynomials are fits made for Weft in 60 digits, each at the nodes of Chebyshev polynomials over the
// interval named next to it; they agree with the functions to 1e-14 or better in f64.
#include "ops/special_functions.hpp"

#include <fmt/format.h>

#include <span>
#include <string>

#include "ops/polynomial_text.hpp"

namespace weft::scalar {
namespace {

// clang-format off
// (1 + x) e^(x^2) erfc(x) over (x - 4) / (x + 4), for x >= 0.
constexpr double kErfcx[] = {
    0.6849972881253069, -0.19934458280036477, 0.1170496655104416, -0.048080381221510905, 0.0039620556813659245,
    0.015312509684607862, -0.017515654648462987, 0.012161784688837766, -0.006068735197034226, 0.002116422016358314,
    -0.0003897676323885187, -6.013856011515526e-05, 6.403330801055113e-05, -1.3146365081556272e-05,
    -4.139903292167995e-06, 2.641883507182724e-06, 6.583033986867059e-09, -3.545328591496026e-07, 4.84559431100957e-08,
    3.9935833564618376e-08, -9.390920959247e-09, -2.9553350857108825e-09, 8.818749053196567e-10};
// erfinv(x) / x over w = -ln(1 - x^2): for w below 5, over (w - 2.5) / 2.5;
constexpr double kErfinvCentre[] = {
    1.501409351110792, 0.6166006918604168, -0.02610823577739685, -0.01957356105949192, 0.008525400950881374,
    -0.0004878983995287066, -0.0008341356424326585, 0.00029219069710081333, 2.0472405392775633e-05,
    -4.143213681410453e-05, 8.652789487517385e-06, 2.8518673276550456e-06, -1.8540913839319056e-06,
    1.3539285258646922e-07, 1.9999152856970617e-07, -7.032602580585866e-08, -7.292911141621871e-09,
    1.058497170884755e-08, -1.5243041579015329e-09, -7.732729988966318e-10, 2.4064063789792884e-10};
// for sqrt(w) from sqrt(5) to 5, over that interval;
constexpr double kErfinvTail[] = {
    3.4544319345364527, 1.3931084317463485, 0.005018399459409771, -0.004299176221349962, 0.0028097644193499963,
    -0.0021857042247013275, 0.0019099151813273786, -0.0015005850185818553, 0.0008845226372242783,
    -0.0002777576978298247, -9.606507703641721e-05, 0.00019201179254671095, -0.00012358598808111007,
    3.035260120116668e-05, 1.70810536319642e-05, -2.1069403247007513e-05, 1.0169948402997761e-05,
    -1.494906581486798e-06, -2.2700311223833153e-06, 2.1440028668774806e-06, -4.2591836144029845e-07,
    -3.324002956906873e-07, 1.4091701704820218e-07};
// beyond, divided by sqrt(w), over 1 / sqrt(w) from 1 / 27.5 to 1 / 5. 27.5 is where w meets the least f64.
constexpr double kErfinvFar[] = {
    0.9858803801889134, -0.014749845690893099, -0.001793641080438189, 0.000754596127526201, -0.0001368003894777038,
    3.57447164383127e-05, -1.2728601241938373e-05, 5.0917722364055405e-06, -2.2028174352186016e-06,
    1.0027901984120375e-06, -4.841424582023992e-07, 2.863065944173768e-07, -1.5238356943084463e-07,
    -6.048979724300421e-09, 8.650691578072726e-09, 1.0786419773131596e-07, -6.527951294687505e-08,
    -5.20676508355497e-08, 3.223347142853837e-08, 2.0825691605614563e-08, -1.269258999415204e-08};
// sqrt(x) e^-x I0(x), sqrt(x) e^-x I1(x) and x^(3/2) e^-x (I0(x) - I1(x)) over 24 / x - 1, for x >= 12.
constexpr double kBessel0[] = {
    0.4010710650668474, 0.0021821681721169426, 5.598482533364579e-05, 2.797707018723217e-06, 2.1716050330438626e-07,
    2.3688437138529013e-08, 3.4434288960480876e-09, 6.480594489084545e-10, 1.5625009897783602e-10,
    4.793431885757478e-11, 1.86786960871825e-11, 1.1567225133595174e-11, 8.731478514943598e-12, 1.160616007503719e-12,
    -4.776314955436403e-12, -2.643642822555006e-12, 6.513895669865593e-13, 5.651639972768679e-13};
constexpr double kBessel1[] = {
    0.39262449420411655, -0.006405453603482373, -9.124755355074322e-05, -3.827951354766477e-06, -2.726845483614065e-07,
    -2.8253705687513596e-08, -3.967546482654758e-09, -7.281746097010025e-10, -1.7218260229843336e-10,
    -5.200740998856461e-11, -1.995906955937782e-11, -1.2179489345971289e-11, -9.241888378982641e-12,
    -1.3598828015317703e-12, 4.949031304204529e-12, 2.7950069920716694e-12, -6.631028143987137e-13,
    -5.901323139685153e-13};
constexpr double kBesselDifference[] = {
    0.20271770070554065, 0.003385221908843004, 0.00014835518438962106, 1.0660616561173623e-05, 1.0956644767888331e-06,
    1.5094729870874204e-07, 2.6918349437383196e-08, 6.107665779782974e-09, 1.761758557937269e-09, 6.556201662163896e-10,
    3.1599985282824777e-10, 1.9857490750798435e-10, 1.3763390048854054e-10, 1.9733329243064427e-11,
    -1.216360596704858e-10, -1.097415853954752e-10, 2.4935325904970512e-11, 6.206935142023162e-11,
    1.1916468916989201e-12, -1.8068800840439763e-11, -9.7824579623033e-13, 2.389106286262063e-12};
// ln gamma(x) / ((x - 1) (x - 2)) over x - 2 from -1 to 1: its zeros stay exact.
constexpr double kLgamma[] = {
    0.4227843350984672, -0.10031730167435395, 0.0329650006211419, -0.012384192193364526, 0.004998641165474131,
    -0.002108130834332547, 0.00091537690527288, -0.0004057073892742056, 0.00018255283120135137,
    -8.309521946458717e-05, 3.8167601000364536e-05, -1.766105183616701e-05, 8.227705232611113e-06,
    -3.849997161230253e-06, 1.7923920411786242e-06, -8.453442762427366e-07, 4.3404410108070576e-07,
    -2.0635178288309344e-07, 5.165015376455897e-08, -2.4332114658098466e-08, 5.4754361972630815e-08,
    -2.64252707231207e-08, -1.3074081880171198e-08, 6.3565524302872395e-09, 5.89638616423332e-09,
    -2.8541007959705006e-09};
// B_2k / (2k (2k - 1)): the series of Stirling for ln gamma, in 1 / z^(2k - 1).
constexpr double kStirling[] = {
    1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156, -3617.0 / 122400};
// B_2k / 2k: its derivative, in 1 / z^2k.
constexpr double kDigamma[] = {
    1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12, -3617.0 / 8160};
// B_2k / (2k)!: the series of Euler and Maclaurin for sums of powers.
constexpr double kEulerMaclaurin[] = {
    1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0, 1.0 / 74724249600.0,
    -3617.0 / 10670622842880000.0};
// clang-format on

std::string bessel_near(int order) {
  return fmt::format("var q = 0.25 * x * x; {}exp(-abs(x)) * ({})", order == 0 ? "" : "0.5 * x * ",
                     bessel_series(order, 28));
}
std::string bessel(int order, std::span<const double> far) {
  return fmt::format("var a = abs(x); var u = 24 / max(a, 12) - 1; a < 12 ? i{}e_near(x) : {}({}) * rsqrt(max(a, 12))",
                     order, order == 0 ? "" : "sign(x) * ", polynomial(far, "u"));
}

// The derivatives of i0e and i1e beyond 12. There i0e - i1e has 1 / 2x of the digits of both, and the fit of it has all.
std::string bessel_slope(int order) {
  const char* text = order == 0 ? "-sign(x) * d" : "d - ({})";
  return fmt::format("var b = abs(x) < 12 ? 12 : abs(x); var u = 24 / b - 1; var d = {}; ({}) * rsqrt(b) / b",
                     polynomial(kBesselDifference, "u"), fmt::format(fmt::runtime(text), polynomial(kBessel1, "u")));
}

// Arguments below 1/2 are reflected first. Up to 3 a polynomial is used, with one step of the recurrence below 1. Stirling's
// series needs z >= 8: a smaller z moves up by gamma(z + 8) = z (z + 1) ... (z + 7) gamma(z).
std::string lgamma_text() {
  return fmt::format(
      "var z = x < 0.5 ? 1 - x : x; var p = z; var w = z + 8;"
      "p = p * (z + 1) * (z + 2) * (z + 3) * (z + 4) * (z + 5) * (z + 6) * (z + 7);"
      "var s = z < 8 ? w : z; var r = 1 / s; var q = r * r;"
      "var far = (s - 0.5) * log(s) - s + 0.91893853320467274178 + r * ({}) - (z < 8 ? log(p) : 0);"
      "var n = z < 1 ? z + 1 : z; var u = n - 2;"
      "var near = (n - 1) * u * ({}) - (z < 1 ? log(z) : 0);"
      "var l = z < 3 ? near : far;"
      "var t = x - round(x);"
      "abs(x) == inf ? inf : x < 0.5 ? log(pi / abs(sin(pi * t))) - l : l",
      polynomial(kStirling, "q"), polynomial(kLgamma, "u"));
}

std::string digamma_text() {
  return fmt::format(
      "var z = x < 0.5 ? 1 - x : x;"
      "var p = 1 / z + 1 / (z + 1) + 1 / (z + 2) + 1 / (z + 3) + 1 / (z + 4) + 1 / (z + 5) + 1 / (z + 6) + 1 / (z + 7);"
      "var s = z < 8 ? z + 8 : z; var r = 1 / s; var q = r * r;"
      "var d = log(s) - 0.5 * r - q * ({}) - (z < 8 ? p : 0);"
      "var t = x - round(x);"
      "x == 0 ? -1 / x : x < 0 && t == 0 ? nan : x < 0.5 ? d - pi / tan(pi * t) : d",
      polynomial(kDigamma, "q"));
}

// sum_k (x + k)^-s for s > 1 and x > 0: eight terms, and the rest by Euler and Maclaurin.
std::string zeta_text() {
  std::string text =
      "var z = x + 8; var r = 1 / z; var q = r * r; var f = pow(z, -s); var sum = z * f / (s - 1) + 0.5 * f;";
  for (int k = 0; k < 8; ++k) text += fmt::format("sum = sum + pow(x + {}, -s);", k);
  text += "var c = s * f * r;";
  for (int k = 1; k <= 8; ++k) {
    text += fmt::format("sum = sum + ({:.17g}) * c;", kEulerMaclaurin[k - 1]);
    if (k < 8) text += fmt::format("c = c * (s + {}) * (s + {}) * q;", 2 * k - 1, 2 * k);
  }
  return text + "sum";
}

// Euclid's algorithm with remainders of the least size: 52 steps reach the end for integers of 64 bits. x % 0 is 0.
std::string gcd_text() {
  std::string text = "var a = abs(x); var b = abs(y); var r = a; ";
  for (int step = 0; step < 52; ++step) text += "r = a % b; a = b == 0 ? a : b; b = min(r, b - r);";
  return text + "a";
}

struct Texts {
  // x^2 is split so that the exponential keeps its digits: h has few bits, and its square is exact.
  std::string erfcx = fmt::format("var t = 1 - 8 / (x + 4); ({}) / (1 + x)", polynomial(kErfcx, "t"));
  std::string erfinv_ratio = fmt::format(
      "var c = w * 0.4 - 1; var s = sqrt(w); var t = s * {:.17g} - {:.17g}; var u = {:.17g} / s - {:.17g};"
      "w < 5 ? {} : s < 5 ? {} : s * ({})",
      2 / (5 - kRoot5), (5 + kRoot5) / (5 - kRoot5), 2 / (1 / 5.0 - 1 / 27.5),
      (1 / 5.0 + 1 / 27.5) / (1 / 5.0 - 1 / 27.5), polynomial(kErfinvCentre, "c"), polynomial(kErfinvTail, "t"),
      polynomial(kErfinvFar, "u"));
  std::string i0e_near = bessel_near(0), i1e_near = bessel_near(1);
  std::string i0e = bessel(0, kBessel0), i1e = bessel(1, kBessel1);
  std::string i0e_slope = bessel_slope(0), i1e_slope = bessel_slope(1);
  std::string lgamma = lgamma_text(), digamma = digamma_text(), zeta = zeta_text(), gcd = gcd_text();

  static constexpr double kRoot5 = 2.2360679774997896964;
};

}  // namespace

std::string polynomial(std::span<const double> coefficients, std::string_view variable) {
  std::string text;
  for (std::size_t i = coefficients.size(); i-- > 0;) {
    if (!text.empty()) text = fmt::format("({}) * {} + ", text, variable);
    text += fmt::format("({:.17g})", coefficients[i]);
  }
  return text;
}

std::span<const double> stirling_coefficients() { return kStirling; }
std::span<const double> lgamma_coefficients() { return kLgamma; }

std::vector<DerivedFunction> special_functions() {
  static const Texts texts;
  return {
      {"erfcx_positive", {"x"}, texts.erfcx},
      {"erfc",
       {"x"},
       "var a = min(abs(x), 30); var h = round(a * 16) * 0.0625;"
       "var tail = exp(-h * h) * exp((h - a) * (h + a)) * erfcx_positive(a);"
       "abs(x) < 0.5 ? 1 - erf(x) : x < 0 ? 2 - tail : tail"},
      // The square is split as in erfc.
      {"erfcx",
       {"x"},
       "var a = min(abs(x), 30); var h = round(a * 16) * 0.0625; var r = erfcx_positive(x < 0 ? a : x);"
       "x < 0 ? 2 * exp(h * h) * exp((a - h) * (a + h)) - r : r"},
      {"erfinv_ratio", {"w"}, texts.erfinv_ratio},
      {"erfinv", {"x"}, "x * erfinv_ratio(-log((1 - x) * (1 + x)))"},
      {"ndtri", {"x"}, "sqrt(2) * (2 * x - 1) * erfinv_ratio(-log(4 * x * (1 - x)))"},
      {"i0e_near", {"x"}, texts.i0e_near},
      {"i1e_near", {"x"}, texts.i1e_near},
      {"i0e_slope", {"x"}, texts.i0e_slope},
      {"i1e_slope", {"x"}, texts.i1e_slope},
      {"i0e", {"x"}, texts.i0e},
      {"i1e", {"x"}, texts.i1e},
      {"i0", {"x"}, "abs(x) == inf ? inf : exp(abs(x)) * i0e(x)"},
      {"i1", {"x"}, "abs(x) == inf ? x : exp(abs(x)) * i1e(x)"},
      {"lgamma", {"x"}, texts.lgamma},
      {"digamma", {"x"}, texts.digamma},
      {"zeta_positive", {"s", "x"}, texts.zeta},
      // Left of 0 the order s is whole. There the sum over all x + k, which only depends on the fraction of x, is known from two
      // sums to the right; a third takes away the terms that do not belong to it.
      {"zeta",
       {"s", "x"},
       "var n = round(s); var odd = n - 2 * floor(n * 0.5 + 0.25) > 0.5; var f = x - floor(x); var right = x > 0;"
       "var own = zeta_positive(right ? s : n, right ? x : f);"
       "var others = zeta_positive(n, 1 - f) - zeta_positive(n, 1 - x);"
       "s == 1 ? inf : s < 1 ? nan : x == inf ? 0 : s == inf && right ? pow(x, -s) : right ? own : f == 0 ? inf :"
       "s != n ? nan : own + (odd ? -others : others)"},
      {"polygamma",
       {"x", "n"},
       "var odd = n - 2 * floor(n * 0.5 + 0.25) > 0.5;"
       "n == 0 ? digamma(x) : (odd ? 1 : -1) * exp(lgamma(n + 1)) * zeta(n + 1, x)"},
      {"gcd", {"x", "y"}, texts.gcd},
  };
}

}  // namespace weft::scalar

// The incomplete gamma functions: a power series, a continued fraction, and for large a Temme's uniform expansion (N. M. Temme
// 1979, "The asymptotic expansion of the incomplete gamma functions"; DLMF 8.11.2, 8.9.2 and 8.12).
#include <fmt/format.h>

#include "ops/polynomial_text.hpp"
#include "ops/special_functions.hpp"

namespace weft::scalar {
namespace {

// clang-format off
// Powers of eta in Temme's expansion, computed in 60 digits by the recurrence of DLMF 8.12.12: a row for each power of 1 / a, with
// the terms that count for a > 20 and |eta| < 0.63.
constexpr int kTemmeTerms[] = {19, 17, 15, 15, 13, 12, 10, 8, 6, 4};
constexpr double kTemme[] = {
    -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
    -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06,
    8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
    -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11, -5.830772132550426e-11,
    2.4361948020667415e-11, -5.0276692801141755e-12, -0.001851851851851852, -0.003472222222222222,
    0.0026455026455026454, -0.0009902263374485596, 0.00020576131687242798, -4.018775720164609e-07,
    -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06, 4.647127802807434e-09,
    1.378633446915721e-07, -5.752545603517705e-08, 1.1951628599778148e-08, -1.7543241719747647e-11,
    -1.0091543710600413e-09, 4.162792991842583e-10, -8.56390702649298e-11, 0.004133597883597883,
    -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06, -0.0001073665322636516,
    5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08, 1.3721957309062934e-06,
    -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10, -1.409252991086752e-08,
    6.228974084922022e-09, -1.3670488396617114e-09, 0.0006494341563786008, 0.00022947209362139917,
    -0.0004691894943952557, 0.00026772063206283885, -7.561801671883977e-05, -2.396505113867297e-07,
    1.1082654115347302e-05, -5.6749528269915965e-06, 1.4230900732435883e-06, -2.7861080291528143e-11,
    -1.6958404091930278e-07, 8.099464905388083e-08, -1.9111168485973655e-08, 2.3928620439808118e-12,
    2.0620131815488797e-09, -0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902,
    -1.4638452578843418e-06, 6.641498215465122e-05, -3.968365047179435e-05, 1.1375726970678419e-05,
    2.507497226237533e-10, -1.6954149536558305e-06, 8.907507532205309e-07, -2.292934834000805e-07,
    2.956794137544049e-11, 2.8865829742708783e-08, -0.00033679855336635813, -6.972813758365857e-05,
    0.0002772753244959392, -0.00019932570516188847, 6.797780477937208e-05, 1.419062920643967e-07,
    -1.3594048189768693e-05, 8.018470256334202e-06, -2.291481176508095e-06, -3.252473551298454e-10,
    3.4652846491085265e-07, -1.8447187191171344e-07, 0.0005313079364639922, -0.0005921664373536939,
    0.0002708782096718045, 7.902353232660328e-07, -8.153969367561969e-05, 5.61168275310625e-05,
    -1.8329116582843375e-05, -3.0796134506033047e-09, 3.465155368803609e-06, -2.0291327396058603e-06,
    0.00034436760689237765, 5.171790908260592e-05, -0.00033493161081142234, 0.0002812695154763237,
    -0.00010976582244684731, -1.2741009095484485e-07, 2.7744451511563645e-05, -1.8263488805711332e-05,
    -0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721, -6.969091458420552e-07,
    0.00016644846642067547, -0.00012783517679769218, -0.0005967612901927463, -7.204895416020011e-05,
    0.0006782308837667328, -0.0006401475260262758};
// eta / m with eta^2 / 2 = m - ln(1 + m), a fit over (m - 0.1) / 0.6.
constexpr double kTemmeEta[] = {
    0.9684854356855491, -0.17887597880301093, 0.057354924146700466, -0.021848194256414107, 0.009079951347094951,
    -0.003978739677727365, 0.0018067607929176668, -0.0008418094687988668, 0.00039989789027787044,
    -0.0001928710852202931, 9.416161649245352e-05, -4.643507796529756e-05, 2.3089875757386577e-05,
    -1.1550707542592274e-05, 5.819386370959438e-06, -2.986877094294547e-06, 1.5205765721530197e-06,
    -6.878451428101681e-07, 3.514954294270295e-07, -3.245409041074544e-07, 1.6894964459953346e-07,
    7.678501705841956e-08, -4.107129580160012e-08, -1.0841182015721603e-07, 5.71433864625884e-08,
    3.7641727981225766e-08, -1.9893517195225485e-08, -1.0336922490992682e-08, 5.450775932786866e-09};
// clang-format on

constexpr int kSeriesTerms = 50;    // beyond 1e-15 for a up to 20, and for x below a / 2
constexpr int kFractionTerms = 55;  // beyond 1e-14 for x from max(a, 1.5)
constexpr int kLogarithmTerms = 20;

std::string temme_sum() {
  std::string text;
  std::size_t end = std::size(kTemme);
  for (std::size_t k = std::size(kTemmeTerms); k-- > 0;) {
    const auto count = static_cast<std::size_t>(kTemmeTerms[k]);
    const std::string row = polynomial(std::span(kTemme).subspan(end - count, count), "e");
    text = text.empty() ? row : fmt::format("({}) * r + {}", text, row);
    end -= count;
  }
  return text;
}

// What both functions are made of: `near` where Temme's expansion holds, with its two parts `half` and `rest`; `series`, which is P;
// `fraction`, which is Q; and `small`, which is Q for small a, where 1 - P would cancel.
std::string igamma_parts() {
  std::string text = fmt::format(
      "var m = (x - a) / a; var near = a > 20 && m > -0.5 && m < 0.7; var r = 1 / max(a, 20);"
      "var t = (m - 0.1) / 0.6; var e = m * ({}); var half = e * sqrt(0.5 * a);"
      "var rest = exp(-half * half) * sqrt(r / (2 * pi)) * ({}); var d = igamma_factor(a, x);",
      polynomial(kTemmeEta, "t"), temme_sum());
  text += "var sum = 1;";
  for (int n = kSeriesTerms; n > 0; --n) text += fmt::format("sum = 1 + x * sum / (a + {});", n);
  text += fmt::format("var y = x - a; var f = y + {};", 2 * kFractionTerms + 1);
  for (int n = kFractionTerms; n > 0; --n) text += fmt::format("f = y + {} - {} * ({} - a) / f;", 2 * n - 1, n, n);
  // x^a / gamma(a + 1) is 1 + w, and the rest of the series alternates.
  text += "var w = expm1(a * log(x) - lgamma_of_next(a)); var c = 1; var alternating = 0;";
  for (int n = 1; n <= kLogarithmTerms; ++n)
    text += fmt::format("c = c * x * ({:.17g}); alternating = alternating + c / (a + {});", -1.0 / n, n);
  return text +
         "var small = -w - (1 + w) * a * alternating; var series = d * sum; var fraction = d * a / f;"
         "var below = x < max(a, 1.5);";
}

// x^a e^-x / gamma(a + 1), or with `density` x^(a - 1) e^-x / gamma(a).
//
// Up to a = 8, gamma(a + 1) comes by its recurrence from gamma(1 + f) with the fraction f of a, and the power and the exponential keep
// all of their digits: those of e^(a ln x - x) would be lost in the sum. e^-x is two factors, because the power may bring back what
// alone would vanish. Beyond, the exponent is a (ln(1 + m) - m) with m = x / a - 1, which near m = 0 is the eta of Temme.
std::string power_text(bool density) {
  std::string text = "var c = a < 8 ? a : 0; var n = floor(c); var f = c - n; var p = 1;";
  for (int k = 1; k <= 6; ++k) text += fmt::format("p = n > {0} ? p * (c - {0}) : p;", k);
  text += density ? "p = n > 0 ? 1 / p : c;" : "p = 1 / (n > 0 ? p * c : p);";
  text += fmt::format(
      "var h = exp(-0.5 * x); var small = h * (pow(x, {}) * p * exp(-lgamma_of_next(f))) * h;"
      "var b = a < 8 ? 8 : a; var r = 1 / b; var q = r * r; var m = (x - b) / b; var near = m > -0.5 && m < 0.7;"
      "var v = near ? m : 0; var t = (v - 0.1) / 0.6; var e = v * ({}); var w = near ? 1 : x / b;"
      "var s = near ? -0.5 * b * e * e : {} * log(w) - (x - b);"
      "a < 8 ? small : exp(s - r * ({})) * rsqrt(2 * pi * b)",
      density ? "c - 1" : "c", polynomial(kTemmeEta, "t"), density ? "(b - 1)" : "b",
      polynomial(stirling_coefficients(), "q"));
  return density ? text + " * (near ? b / x : 1)" : text;
}

struct IncompleteGammaTexts {
  std::string factor = power_text(false), power = power_text(true);
  std::string density =
      "x < 0 || a < 0 || is_nan(x) || is_nan(a) ? nan : a == inf ? (x == inf ? nan : 0) : x == inf || a == 0 ? 0 : "
      "gamma_power(a, x)";
  std::string next = fmt::format("var u = x - 1; x * u * ({})", polynomial(lgamma_coefficients(), "u"));
  std::string lower =
      igamma_parts() +
      "x < 0 || a < 0 ? nan : a == 0 ? (x > 0 ? 1 : nan) : x == 0 ? 0 : a == inf ? (x == inf ? nan : 0) :"
      "x == inf ? 1 : near ? 0.5 * erfc(-half) - rest : below ? series : 1 - fraction";
  std::string upper =
      igamma_parts() +
      "x < 0 || a < 0 ? nan : a == 0 ? (x > 0 ? 0 : nan) : x == 0 ? 1 : a == inf ? (x == inf ? nan : 1) :"
      "x == inf ? 0 : near ? 0.5 * erfc(half) + rest : below ? (a < 1 ? small : 1 - series) : fraction";
};

}  // namespace

std::vector<DerivedFunction> incomplete_gamma_functions() {
  static const IncompleteGammaTexts texts;
  return {
      {"igamma_factor", {"a", "x"}, texts.factor},  // x^a e^-x / gamma(a + 1)
      {"gamma_power", {"a", "x"}, texts.power},     // x^(a - 1) e^-x / gamma(a)
      {"gamma_density", {"a", "x"}, texts.density},
      {"lgamma_of_next", {"x"}, texts.next},  // ln gamma(1 + x) for x in [0, 1], to all digits near 0
      {"igamma", {"a", "x"}, texts.lower},
      {"igammac", {"a", "x"}, texts.upper},
  };
}

}  // namespace weft::scalar

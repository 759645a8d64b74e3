#include "grammar/formats.hpp"

#include <memory>
#include <string>

#include "grammar/pattern.hpp"

namespace weft::grammar {
namespace {

Regular whole(const std::string& pattern) { return Regular(*parse_pattern(pattern)); }

const std::string kLeapYear = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const std::string kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
    kLeapYear + "-02-29)";
const std::string kTime =
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])|"
    "23:59:60(?:\\.[0-9]+)?[Zz])";
const std::string kDayTime = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
const std::string kDuration =
    "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:" + kDayTime + ")?|" + kDayTime +
    ")";
const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string kIpv4 = "(?:" + kByte + "\\.){3}" + kByte;

std::string ipv6_pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}", last = "(?:" + group + ":" + group + "|" + kIpv4 + ")";
  // RFC 3986, section 3.2.2: up to 6 - n groups before ::, and n groups with the last two after it.
  std::string all = "(?:" + group + ":){6}" + last;
  for (int after = 5; after >= 0; --after) {
    const int before = 5 - after;
    const std::string front =
        before == 0 ? "" : "(?:(?:" + group + ":){0," + std::to_string(before - 1) + "}" + group + ")?";
    all += "|" + front + "::" + (after == 0 ? "" : "(?:" + group + ":){" + std::to_string(after) + "}") + last;
  }
  all += "|(?:(?:" + group + ":){0,5}" + group + ")?::" + group;
  all += "|(?:(?:" + group + ":){0,6}" + group + ")?::";
  return all;
}

Regular hostname() {
  const Regular label = intersect(
      whole("[a-zA-Z0-9](?:[a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])?"),
      whole(
          "[^.]{0,3}|[^.]{2}(?:[^.\\-][^.]|-[^.\\-])[^.]*|xn--[^.]*|XN--[^.]*"));  // other labels with -- are reserved
  // Labels with dots between them: the automaton of one, whose ends go on to its start.
  Regular labels = label;
  for (Regular::State& state : labels.states)
    if (state.accepts) state.edges.push_back({CodePoints::one('.'), 0});
  return intersect(labels, whole("[^\\n]{1,253}"));
}

Regular email() {
  const std::string atom = "[a-zA-Z0-9!#$%&'*+\\-/=?^_`{|}~]+";
  const Regular local = intersect(whole(atom + "(?:\\." + atom + ")*"), whole("[^@]{1,64}"));
  Regular address = local;
  const Regular domain = hostname();
  const auto first = static_cast<std::uint32_t>(address.states.size());
  for (Regular::State& state : address.states) {
    if (state.accepts) state.edges.push_back({CodePoints::one('@'), first});
    state.accepts = false;
  }
  for (Regular::State state : domain.states) {
    for (Regular::Edge& edge : state.edges) edge.target += first;
    for (std::uint32_t& target : state.skips) target += first;
    address.states.push_back(std::move(state));
  }
  return address;
}

Regular uri() {
  const std::string encoded = "%[0-9A-Fa-f]{2}", plain = "a-zA-Z0-9\\-._~!$&'()*+,;=";
  const auto any_of = [&](const std::string& more) { return "(?:[" + plain + more + "]|" + encoded + ")"; };
  const std::string segment = any_of(":@") + "*", path = "(?:/" + segment + ")*";
  const std::string authority =
      "(?:" + any_of(":") + "*@)?(?:" + any_of("") + "*|\\[(?:" + ipv6_pattern() + ")\\])(?::[0-9]*)?";
  const std::string rooted = "/(?:" + any_of(":@") + "+" + path + ")?", rootless = any_of(":@") + "+" + path;
  const std::string tail = any_of(":@/?") + "*";
  return whole("[a-zA-Z][a-zA-Z0-9+\\-.]*:(?://" + authority + path + "|" + rooted + "|" + rootless + "|)(?:\\?" +
               tail + ")?(?:#" + tail + ")?");
}

struct FormatRow {
  std::string_view name;
  Regular (*make)();
};
constexpr FormatRow kFormatRows[] = {
    {"date-time", [] { return whole(kDate + "[Tt]" + kTime); }},
    {"date", [] { return whole(kDate); }},
    {"time", [] { return whole(kTime); }},
    {"duration", [] { return whole(kDuration); }},
    {"email", email},
    {"hostname", hostname},
    {"ipv4", [] { return whole(kIpv4); }},
    {"ipv6", [] { return whole(ipv6_pattern()); }},
    {"uuid", [] { return whole("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"); }},
    {"uri", uri},
};

}  // namespace

const Regular* find_format_automaton(std::string_view name) {
  static const std::vector<std::pair<std::string_view, Regular>> kAutomata = [] {
    std::vector<std::pair<std::string_view, Regular>> all;
    for (const FormatRow& row : kFormatRows) all.emplace_back(row.name, row.make());
    return all;
  }();
  for (const auto& [known, automaton] : kAutomata)
    if (known == name) return &automaton;
  return nullptr;
}

}  // namespace weft::grammar

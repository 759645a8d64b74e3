#include "grammar/formats.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

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

// A label of a host name of up to `longest` characters.
Regular host_label(int longest) {
  return intersect(
      whole(fmt::format("[a-zA-Z0-9](?:[a-zA-Z0-9\\-]{{0,{}}}[a-zA-Z0-9])?", longest - 2)),
      whole(
          "[^.]{0,3}|[^.]{2}(?:[^.\\-][^.]|-[^.\\-])[^.]*|xn--[^.]*|XN--[^.]*"));  // other labels with -- are reserved
}

// Adds an automaton behind the places where another one accepts and `on` follows; those places then accept no more unless
// `goes_on`.
void append_behind(Regular& automaton, const Regular& next, char32_t on, bool goes_on) {
  const auto first = static_cast<std::uint32_t>(automaton.states.size());
  for (Regular::State& state : automaton.states) {
    if (state.accepts) state.edges.push_back({CodePoints::one(on), first});
    state.accepts = state.accepts && goes_on;
  }
  for (Regular::State state : next.states) {
    for (Regular::Edge& edge : state.edges) edge.target += first;
    for (std::uint32_t& target : state.skips) target += first;
    automaton.states.push_back(std::move(state));
  }
}

// Up to `count` labels with dots between them.
Regular host_labels(int count, int longest) {
  const Regular label = host_label(longest);
  Regular labels = label;
  for (int i = 1; i < count; ++i) {
    // Only the last label goes on.
    Regular longer = label;
    append_behind(longer, labels, '.', true);
    labels = std::move(longer);
  }
  return labels;
}

// At most 253 characters: three labels of any length, or eight of up to 30 characters. An exact count would take 33,000 states.
Regular hostname() {
  Regular names;
  names.states.resize(1);
  for (const Regular& each : {host_labels(3, 63), host_labels(8, 30)}) {
    const auto first = static_cast<std::uint32_t>(names.states.size());
    names.states[0].skips.push_back(first);
    for (Regular::State state : each.states) {
      for (Regular::Edge& edge : state.edges) edge.target += first;
      for (std::uint32_t& target : state.skips) target += first;
      names.states.push_back(std::move(state));
    }
  }
  return names;
}

Regular email() {
  const std::string atom = "[a-zA-Z0-9!#$%&'*+\\-/=?^_`{|}~]+";
  const Regular local = intersect(whole(atom + "(?:\\." + atom + ")*"), whole("[^@]{1,64}"));
  Regular address = local;
  append_behind(address, hostname(), '@', false);
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
  // Each is made when it is first asked for, and kept.
  static std::mutex mutex;
  static std::map<std::string_view, Regular> made;
  const std::lock_guard lock(mutex);
  for (const FormatRow& row : kFormatRows) {
    if (row.name != name) continue;
    auto found = made.find(row.name);
    if (found == made.end()) found = made.emplace(row.name, row.make()).first;
    return &found->second;
  }
  return nullptr;
}

}  // namespace weft::grammar

// Templates: what Jinja2 does, marks of user data, limits, and errors with their places. template_judge.py compares far
// more with Jinja2 itself.
#include "jinja/template.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>

#include "base/mutations.hpp"
#include "weft/error.hpp"

namespace weft::jinja::template_test {
namespace {

std::vector<TemplateVariable> variables_of(const char* json, bool from_user = true) {
  std::vector<TemplateVariable> variables;
  const OrderedJson values = parse_ordered_json(json, "variables");
  for (const auto& [name, value] : values.items()) variables.push_back({name, value, from_user});
  return variables;
}

std::string rendered(std::string_view source, const char* variables = "{}", TemplateLimits limits = {}) {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  return Template(source, "chat", limits).render(variables_of(variables), now).text();
}

// The message of the error that rendering ends in; "" if it does not.
std::string refusal(std::string_view source, const char* variables = "{}", TemplateLimits limits = {}) {
  try {
    rendered(source, variables, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Case {
  const char* source;
  const char* text;
};

constexpr const char* kVariables =
    R"({"i": 7, "f": 2.5, "s": "Hello", "n": null, "l": [3, 1, 2], "d": {"b": 1, "a": "x"}, "u": "é你😀",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})";

const Case kCases[] = {
    // White space.
    {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
    {"  {% if true %}x{% endif %}  {{ i }}", "x  7"},
    {"a {{- i -}} \n b", "a7b"},
    {"a\n  {%+ if true %}x{% endif +%}\ny", "a\n  x\ny"},
    {"a{# b #}\nc {#- d -#} e",
     "ac"
     "e"},
    {"{% raw %}{{ x }}{% endraw %}\r\nz", "{{ x }}z"},
    // Statements.
    {"{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
     "1:3, 2:2"},
    {"{% for x in l %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }}|{% endfor %}", "31|312|12|"},
    {"{% for x in l %}{% break %}{% else %}none{% endfor %}", "none"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", "b=1 a=x "},
    {"{% set ns = namespace(t=0) %}{% for x in l %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}", "6"},
    {"{% set a = 1 %}{% for x in l %}{% set a = x %}{% endfor %}{{ a }}", "1"},
    {"{% macro m(a, b=a) %}{{ a }}{{ b }}{{ kwargs }}{% endmacro %}{{ m(1, c=3) }}", "11{'c': 3}"},
    {"{% macro m() %}<{{ caller(5) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}", "<5>"},
    {"{% set x | upper %}a{{ i }}{% endset %}{{ x }}{% filter replace('A', 'b') %}A{% endfilter %}", "A7b"},
    {"{% with a = 1 %}{{ a }}{% endwith %}{{ a }}", "1"},
    {"{% generation %}g{% endgeneration %}", "g"},
    {"{% for x in l recursive %}{{ x }}{% if x == 1 %}{{ loop([9]) }}{% endif %}{% endfor %}", "3192"},
    // Values.
    {"{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 6 / 3 }} {{ 2 ** 3 ** 2 }}", "-4 2 1024 2.0 64"},
    {"{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 100.0 }}", "1e+16 0.30000000000000004 1e-05 100.0"},
    {"{{ 1 < 2 < 3 }} {{ n or 'x' }} {{ 0 and y }} {{ 3 not in l }}", "True x 0 False"},
    {"{{ u[1] }}{{ u[::-1] }}{{ l[-2:] }}{{ l[9] }}{{ u|length }}", "你😀你é[1, 2]3"},
    {"{{ [s, n, true, 1.0, (1,)] }} {{ d }} {{ [\"it's\"] }}",
     "['Hello', None, True, 1.0, (1,)] {'b': 1, 'a': 'x'} [\"it's\"]"},
    {"{{ missing }}|{{ d.zz }}|{{ n.x }}|{{ missing is defined }}|{{ missing|default('D') }}", "|||False|D"},
    {"{{ '%s-%05.1f' % ('a', 2.25) }} {{ '{:>4}|{!r}'.format('x', 'y') }}", "a-002.2    x|'y'"},
    {"{{ d|tojson }} {{ d|tojson(indent=1, sort_keys=true) }} {{ '<é\\n'|tojson }}",
     "{\"b\": 1, \"a\": \"x\"} {\n \"a\": \"x\",\n \"b\": 1\n} \"<é\\n\""},
    {"{{ l|sort|join('-') }} {{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|list }}",
     "1-2-3 ['Hi']"},
    {"{{ ' a b '.split() }} {{ 'ß'|upper }} {{ 'ΑΣ'|lower }} {{ 'a-b'|title }}", "['a', 'b'] SS ας A-B"},
    {"{{ range(3)|list }} {{ dict(a=1) }} {{ strftime_now('%d %b %Y') }}", "[0, 1, 2] {'a': 1} 26 Jul 2024"},
    {"{{ '{\"a\": [1]}'|from_json }}", "{'a': [1]}"},
    // A reversed sort keeps the order of equal ones.
    {"{{ [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}, {'a': 1, 'b': 'z'}]|sort(reverse=true, attribute='a')"
     "|map(attribute='b')|join }}",
     "yxz"},
    // Texts as long as length and leeway stay whole; one character more, and they are cut.
    {"{{ 'abcdefghij'|truncate(5, leeway=5) }} {{ 'abcdefghijk'|truncate(5, leeway=5) }}", "abcdefghij ab..."},
    {"{{ 'abcdefgh'|truncate(8, leeway=0) }} {{ 'abcdefghi'|truncate(8, leeway=0) }}", "abcdefgh abcde..."},
    // Ties to the even ten, below zero too.
    {"{{ 15|round(-1) }} {{ 25|round(-1) }} {{ -15|round(-1) }} {{ -25|round(-1) }} {{ -14|round(-1) }} "
     "{{ -16|round(-1) }}",
     "20 20 -20 -20 -10 -20"},
};

TEST(Template, RendersAsJinja2Does) {
  for (const Case& c : kCases) EXPECT_EQ(rendered(c.source, kVariables), c.text) << c.source;
}

struct Refusal {
  const char* source;
  const char* message;  // a part of it
};

const Refusal kMalformed[] = {
    {"{{ 1 + }}", "chat: line 1, column 8: expected a value, found the end }} of the print"},
    {"a\n é{% if %}", "chat: line 2, column 9: expected an expression, found the end %} of the block"},
    {"{% for x in y %}", "line 1, column 4: what begins here does not end: there is no {% endfor %} or {% else %}"},
    {"{{ 'a", "the string that begins here does not end"},
    {"{{ [1, 2 }}", "column 10: found } where ] would close the last bracket"},
    {"{# a", "the comment that begins here does not end; close it with #}"},
    {"{% raw %}", "close it with {% endraw %}"},
    {"{% include 'x' %}", "the statement include is not supported"},
    {"{% nothing %}", "no statement is called \"nothing\""},
    {"{{ x|nothing }}", "no filter is called \"nothing\"; there are abs"},
    {"{{ x|wordwrap }}", "the filter wordwrap is not supported"},
    {"{{ x is nothing }}", "no test is called \"nothing\""},
    {"{% break %}", "break and continue are allowed inside a for loop only"},
    {"{% for loop in x %}{% endfor %}", "loop cannot be assigned to"},
    {"{{ f(a=1, 2) }}", "out of order"},
    {"{{ 99999999999999999999 }}", "this integer does not fit into 64 bits"},
    {"{{ '\\ud800' }}", "this escape names no character"},
    {"{% set true = 1 %}", "true cannot be assigned to"},
    {"\xff", "UTF-8"},
};

TEST(Template, RefusesMalformedSourcesByPlace) {
  for (const Refusal& r : kMalformed) {
    EXPECT_THROW(Template(r.source, "chat"), FileError) << r.source;
    EXPECT_NE(refusal(r.source).find(r.message), std::string::npos) << r.source << "\n" << refusal(r.source);
  }
}

const Refusal kFailing[] = {
    {"\n  {{ missing.x }}", "chat: line 2, column 13: \"missing\" is undefined; pass it to the template"},
    {"{{ raise_exception('Roles must alternate') }}", "the template refuses its input: Roles must alternate"},
    {"{{ s + 1 }}", "+ cannot join the string \"Hello\" and 1"},
    {"{{ 1 / 0 }}", "/ divides by zero"},
    {"{{ 9223372036854775807 + 1 }}", "the result of + does not fit into 64 bits"},
    {"{{ l.append(4) }}", "the method \"append\" would change a list, which templates cannot do; build a new one"},
    {"{{ d.update({}) }}", "would change a dict"},
    {"{{ s.__class__.__mro__ }}", "a template sees no insides of objects"},
    {"{{ s() }}", "the string \"Hello\" cannot be called"},
    {"{{ 1 < 'a' }}", "have no order"},
    {"{% for x in 5 %}{% endfor %}", "5 has no items to go through"},
    {"{% for a, b in [[1]] %}{% endfor %}", "holds 1 items, and 2 names take them"},
    {"{% set q.a = 1 %}", "\"q\" is not a namespace"},
    {"{{ {[1]: 2} }}", "cannot be a key"},
    {"{{ missing|tojson }}", "tojson: an undefined value has no JSON"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "the macro \"m\" is given 2 arguments and takes 1"},
    {"{{ s.encode() }}", "the method encode of strings is not supported"},
    {"{{ s|replace }}", "the filter replace is not given old; it takes old, new, count"},
    {"{{ range(1000000) }}", "longer than 100000"},
    {"{% if true %}{{ s|nothing }}{% endif %}", "no filter is called \"nothing\""},
    {"{{ '[1'|from_json }}", "not valid JSON"},
};

TEST(Template, RefusesWhatFailsByPlace) {
  for (const Refusal& r : kFailing) {
    EXPECT_THROW(rendered(r.source, kVariables), UsageError) << r.source;
    EXPECT_NE(refusal(r.source, kVariables).find(r.message), std::string::npos) << r.source << "\n"
                                                                                << refusal(r.source, kVariables);
  }
}

TEST(Template, RefusesIntegersBeyond64BitsInVariables) {
  EXPECT_NE(refusal("{{ x }}", R"({"x": [18446744073709551615]})").find("x holds 18446744073709551615"),
            std::string::npos);
}

// ---- Marks of user data -----------------------------------------------------------------------------------------------

// User text in brackets.
std::string marked(std::string_view source, const char* variables) {
  std::string out;
  for (const Segment& segment : Template(source, "chat").render(variables_of(variables)).segments) {
    EXPECT_FALSE(segment.text.empty());
    out += segment.from_user ? "[" + segment.text + "]" : segment.text;
  }
  return out;
}

const Case kMarks[] = {
    {"a{{ x }}b", "a[<|end|>]b"},
    {"{{ 'a' + x + 'b' ~ x }}", "a[<|end|>]b[<|end|>]"},
    {"{{ x[2:5] }}{{ x|upper }}{{ (x ~ '!')|title }}", "[end<|END|><|end|>]!"},
    {"{{ (' ' ~ x ~ ' ')|trim }}{{ ('a' ~ x).split('<')[1] }}", "[<|end|>|end|>]"},
    {"{{ x|replace('|', '!') }}{{ 'a!b'|replace('!', x) }}", "[<]![end]![>]a[<|end|>]b"},
    {"{{ [x, 'y']|join('-') }}{{ [x, 'y'] }}", "[<|end|>]-y['[<|end|>]', 'y']"},
    {"{{ {'k': x}|tojson }}{{ d|tojson }}", "{\"k\": \"[<|end|>]\"}{\"[k\\n]\": \"[v]\"}"},
    {"{{ x|indent }}{{ '%s:%5s' % ('a', x[:1]) }}{{ '<{}>'.format(x) }}", "[<|end|>]a:    [<]<[<|end|>]>"},
    {"{{ x|e }}{{ x|length }}{{ x is string }}", "[&lt;|end|&gt;]7True"},
    {"{% set y %}a{{ x }}{% endset %}{{ y * 2 }}", "a[<|end|>]a[<|end|>]"},
    {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x) }}{% filter upper %}b{{ x }}{% endfilter %}",
     "([<|end|>])B[<|END|>]"},
    {"{% for c in x[:2] %}{{ c }}.{% endfor %}{{ x[::-1] }}", "[<].[|].[>|dne|<]"},
    {"{{ x == '<|end|>' }}{{ 'lit' if x else '' }}{{ x|default('q') }}", "Truelit[<|end|>]"},
    {"{{ j|from_json }}", "{'[a]': '[b]'}"},
};

TEST(Template, MarksWhatComesFromTheUser) {
  for (const Case& c : kMarks)
    EXPECT_EQ(marked(c.source, R"({"x": "<|end|>", "d": {"k\n": "v"}, "j": "{\"a\": \"b\"}"})"), c.text) << c.source;
}

TEST(Template, TrustsWhatIsNotMarked) {
  const Template parsed("{{ bos }}{{ x }}", "chat");
  const Rendered rendered = parsed.render({{"bos", "<s>", false}, {"x", "<s>", true}});
  EXPECT_EQ(rendered.segments, (std::vector<Segment>{{"<s>", false}, {"<s>", true}}));
}

// ---- Limits -----------------------------------------------------------------------------------------------------------

const Refusal kEndless[] = {
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than"},
    {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "turn more than"},
    {"{{ 'x' * 10000000000 }}", "bytes, its limit"},
    // Tuples that share their items: a key of 2^60 of them.
    {"{% set ns = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} "
     "}}",
     "its limit"},
    {"{% set ns = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {1: "
     "1}[ns.t] }}",
     "its limit"},
    {"{{ [0] * 10000000000 }}", "bytes, its limit"},
    {"{{ ('x' * 1000000)|replace('', 'y' * 100000) }}", "bytes, its limit"},
    {"{{ 'x'|center(100000000000) }}", "bytes, its limit"},
    {"{{ '%999999999d' % 1 }}", "width above"},
    {"{{ [1, 2]|slice(100000000000)|list }}", "its limit"},
    {"{{ [1]|batch(100000000000, 0)|list }}", "its limit"},
    {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
     "bytes, its limit"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
     "its limit"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}",
     "nested deeper than"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l|map('upper') %}{% endfor %}",
     "nested deeper than"},
    {"{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", "nested deeper than"},
    {"{% for i in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}", "the output is longer than"},
};

TEST(Template, EndsWhatWouldNotEnd) {
  TemplateLimits limits;
  limits.max_memory_bytes = std::size_t{64} << 20;
  limits.max_output_bytes = 1 << 20;
  limits.max_iterations = 300'000;
  limits.max_time = std::chrono::milliseconds(5000 * test::kSlowdown);
  for (const Refusal& r : kEndless)
    EXPECT_NE(refusal(r.source, "{}", limits).find(r.message), std::string::npos) << r.source << "\n"
                                                                                  << refusal(r.source, "{}", limits);
}

TEST(Template, EndsAfterItsTime) {
  TemplateLimits limits;
  limits.max_time = std::chrono::milliseconds(50);
  limits.max_iterations = UINT64_MAX;
  const std::string message =
      refusal("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "{}", limits);
  EXPECT_NE(message.find("the render takes more than 50 ms"), std::string::npos) << message;
}

TEST(Template, RefusesSourcesOverTheLimits) {
  EXPECT_NE(refusal(std::string(2 << 20, 'x')).find("over the limit of 1048576"), std::string::npos);
  const auto deep = [](std::string_view open, std::string_view close) {
    std::string source = "{{ ";
    for (int i = 0; i < 20'000; ++i) source += open;
    source += "x";
    for (int i = 0; i < 20'000; ++i) source += close;
    return source + " }}";
  };
  for (const std::string& source :
       {deep("(", ")"), deep("[", "]"), deep("{1:", "}"), deep("-", ""), deep("f(", ")"), deep("a[", "]")})
    EXPECT_NE(refusal(source).find("deeper than 150 levels"), std::string::npos) << source.substr(0, 20);
  std::string sum = "{{ 1", blocks, negations = "{{ ", filters = "{{ x", attributes = "{{ x";
  for (int i = 0; i < 20'000; ++i) {
    sum += "+1";
    blocks += "{% if x %}";
    negations += "not ";
    filters += "|d";
    attributes += ".x";
  }
  for (const std::string& source : {sum + " }}", blocks, negations + "x }}", filters + " }}", attributes + " }}"})
    EXPECT_NE(refusal(source).find("deeper than 150 levels"), std::string::npos) << source.substr(0, 20);
}

TEST(Template, NamespacesThatHoldEachOtherAreFreed) {
  EXPECT_EQ(
      rendered("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
               "{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}"
               "{% for x in [1] %}{% macro k() %}{% endmacro %}{% set a.loop = loop %}{% set a.k = k %}{% endfor %}ok"),
      "ok");
}

// ---- Hostile bytes ----------------------------------------------------------------------------------------------------

constexpr const char* kEverything =
    "{{ bos }}{%- set ns = namespace(a=0) %}{# c #}{% macro m(x, y={'k': [1, 2.5e1]}) -%}{{ x ~ y.k[0] }}{%- endmacro "
    "%}\n"
    "{% for m2 in messages if m2.role != 'system' %}{% set ns.a = ns.a + 1 %}{{ m2['content'][1:-1]|trim|upper }}"
    "{{ loop.nextitem.role if not loop.last else '%s' % loop.index }}{% else %}none{% endfor %}"
    "{% call m(1) %}x{% endcall %}{% filter indent(2) %}a\nb{% endfilter %}{% raw %}{{{% endraw %}"
    "{{ d|tojson(indent=2) }}{{ 'a,b'.split(',')|map('upper')|join(\"\\x41\\u00e9\") }}{{ 1 in [1] and 2 is odd or not "
    "3 }}";

// Whatever comes out, it is text or an error.
void expect_handled(const std::string& source) {
  TemplateLimits limits;
  limits.max_time = std::chrono::milliseconds(2000 * test::kSlowdown);
  try {
    Template(source, "chat", limits).render(variables_of(kVariables));
  } catch (const FileError&) {
  } catch (const UsageError&) {
  }
}

TEST(Template, SurvivesEveryTruncation) {
  const std::string source = kEverything;
  for (std::size_t end = 0; end <= source.size(); ++end) expect_handled(source.substr(0, end));
  for (std::size_t begin = 1; begin < source.size(); ++begin) expect_handled(source.substr(begin));
}

TEST(Template, SurvivesEveryFlippedBit) {
  const std::string source = kEverything;
  test::for_each_mutation(source, source.size(), 300,
                          [](const std::string& mutated, const std::string&) { expect_handled(mutated); });
}

TEST(Template, SurvivesRandomChanges) {
  std::mt19937 random(20240726);
  const std::string source = kEverything, pieces = "{}%#-+|()[].,:~*/'\"\\\n 0eéx";
  for (int round = 0; round < 3000; ++round) {
    std::string changed = source;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const std::size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0: changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8)); break;
        case 1: changed[at] = pieces[random() % pieces.size()]; break;
        case 2: changed.insert(at, 1, pieces[random() % pieces.size()]); break;
        default: changed.erase(at, 1 + random() % 8); break;
      }
      if (changed.empty()) changed = "x";
    }
    expect_handled(changed);
  }
}

TEST(Template, RendersInSeveralThreadsAtOnce) {
  const Template parsed("{% for x in l %}{{ x }}{{ loop.cycle('a', 'b') }}{% endfor %}", "chat");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) text = parsed.render(variables_of(kVariables)).text();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "3a1b2a");
}

}  // namespace
}  // namespace weft::jinja::template_test

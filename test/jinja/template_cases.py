"""Cases for template_judge.py: chats, small templates, and templates made at random."""
import itertools

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.\nNow, or later.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name & <country>"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                                     "days": {"type": "array", "items": {"type": "integer"}}, "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}, "required": ["lat"]}},
    "required": ["city"]}, "return": {"type": "string"}}}
NOTHING = {"type": "function", "function": {"name": "noop", "description": "", "parameters": {}}}
ODD = "\u00e9\u00df \u4f60\u597d \U0001f600 \u2028 'single' \"double\" \\back\\ <|im_end|> {{ not }} {% run %} \t\x07 \u200b </think> &amp;"


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


CHATS = {
    "one": [user("Hi")],
    "empty": [],
    "empty content": [user("")],
    "system": [system("Be kind. "), user("  Hi there \n")],
    "system alone": [system("Be kind.")],
    "two turns": [user("Hi"), assistant("Hello!"), user("Who are you?")],
    "ends with the assistant": [system("S"), user("Hi"), assistant("Hello!\n"), user("More"), assistant("  Sure. ")],
    "odd characters": [system(ODD), user(ODD), assistant(ODD), user("line\r\nline\rline\n\n")],
    "reasoning inside": [user("2+2?"), assistant("<think>\nadd\n</think>\n\n4"), user("3+3?"), assistant("<think>six</think>6")],
    "reasoning apart": [user("2+2?"), assistant("4", reasoning_content="\nadd them\n"), user("and 5?"), assistant("9", reasoning_content="")],
    "a tool call": [user("Weather in Oslo?"), assistant("", tool_calls=[call("get_weather", {"city": "Oslo", "days": [1, 2], "x": None, "y": 1.50, "z": True}, id="call12345")]), {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"t\": -3.5}"}, user("Thanks")],
    "none as content": [user("Go"), assistant(None, tool_calls=[call("noop", {}, id="123456789")]), {"role": "tool", "content": "done", "tool_call_id": "123456789"}, assistant("Done.")],
    "several calls": [user("Both"), assistant("Well", tool_calls=[call("get_weather", {"city": "A\u00e5\"'"}, id="a23456789"), call("noop", "{}", id="b23456789")]), {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, assistant("A and B")],
    "a tool gives data": [user("Go"), assistant("", tool_calls=[call("noop", {}, id="123456789")]), {"role": "tool", "content": {"rows": [1, 2.0, None], "k": {"z": 1, "a": 2}}}],
    "pieces": [user([{"type": "text", "text": " What is this? "}, {"type": "image"}, {"type": "text", "text": "Tell."}]), assistant("A cat.")],
    "system in pieces": [system([{"type": "text", "text": "Be kind."}]), user("Hi")],
    "roles out of order": [assistant("First"), user("Second"), user("Third")],
    "an unknown role": [user("Hi"), {"role": "wizard", "content": "Abracadabra"}, user("?")],
    "no role": [{"content": "who?"}],
    "no content": [{"role": "user"}],
    "numbers as content": [user(5), assistant(1.0), user(True)],
    "modes": [system("Think hard. /no_think"), user("Hi"), assistant("\n\nYo"), user("/think more")],
    "many": [message for i in range(12) for message in (user(f"q{i} " + "word " * i), assistant(f"a{i}"))],
}


def chats():
    """(name, variables) for every list of messages, alone, with tools, and with further settings."""
    base = {"bos_token": "<s>", "eos_token": "</s>", "documents": None}
    for name, messages in CHATS.items():
        yield name, {**base, "messages": messages, "tools": None, "add_generation_prompt": True}
        yield f"{name}, with tools", {**base, "messages": messages, "tools": [WEATHER, NOTHING], "add_generation_prompt": len(messages) % 2 == 0}
        yield f"{name}, without thinking", {"bos_token": "", "messages": messages, "add_generation_prompt": True, "enable_thinking": False, "date_string": "1 May 2025", "tools_in_user_message": False, "reasoning_effort": "high"}


def characters():
    """Case, classes, splitting and printing of characters of all kinds, a few hundred a template."""
    code_points = [c for c in itertools.chain(range(0x3000), range(0xA640, 0xABC0), range(0xFB00, 0x10000), range(0x10380, 0x10D00), range(0x118A0, 0x11900), range(0x16E40, 0x16EA0), range(0x1D400, 0x1D480), range(0x1E900, 0x1E960), range(0x1F100, 0x1F200), range(0xE0000, 0xE0200))
                   if not 0xD800 <= c < 0xE000]
    shown = ("{% for c in text %}{{ c|upper }} {{ c|lower }} {{ c|title }} {{ c|capitalize }} {{ c.title() }} {{ c.swapcase() }} {{ [c] }} {{ c.isalpha() }}{{ c.isdigit() }}{{ c.isdecimal() }}{{ c.isnumeric() }}"
             "{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}{{ c.istitle() }}{{ c.isalnum() }}{{ c.isprintable() }}{{ (c ~ c).title() }}\n{% endfor %}"
             "{{ text.split() }}{{ text.splitlines() }}{{ text|tojson }}{{ text|tojson(ensure_ascii=true) }}{{ text|wordcount }}{{ text.strip()|length }}")
    for begin in range(0, len(code_points), 512):
        yield f"U+{code_points[begin]:04X} and on", shown, {"text": "".join(map(chr, code_points[begin:begin + 512]))}
    sigma = "{% for t in texts %}{{ t|lower }} {{ t.capitalize() }} {{ t.title() }} {{ t|title }}|{% endfor %}"
    yield "sigma", sigma, {"texts": ["\u03a3", "A\u03a3", "A\u03a3B", "A.\u03a3", "A\u03a3.", "A\u03a3.B", "A\u0301\u03a3\u0301", ".\u03a3", "\u03a3\u03a3 \u03a3A"]}


VALUES = {"i": 7, "j": -3, "z": 0, "big": 9007199254740993, "f": 2.5, "g": -0.75, "h": 1e16, "t": True, "n": None, "s": "Hello, World", "e": "", "w": "  pad\tded \n", "u": "\u00e9\u4f60\U0001f600<b>'\"", "num": " 42 ", "hex": "0x1F",
          "l": [3, 1, 2], "m": ["b", "A", "c", "a"], "o": [], "mix": [1, "a", None, 2.0, [1], {"k": 1}], "d": {"b": 1, "a": "x", "items": [5]}, "p": {}, "r": [{"name": "Bob", "age": 5, "in": {"k": 1}}, {"name": "al", "age": 3, "in": {"k": 0}}, {"name": "Cy", "in": {}}]}


def expressions(random, count):
    """Templates that print random expressions over VALUES. A third is made to fit types, the rest is thrown together."""
    names = [*VALUES, "missing"]
    filters = ["abs", "capitalize", "center(9)", "count", "default('D')", "default('D', true)", "dictsort", "dictsort(by='value')", "e", "escape", "first", "float", "float(1.5)", "forceescape", "indent", "indent(2, true)", "indent('>>', blank=true)",
               "int", "int(5)", "int(base=16)", "items", "join", "join('-')", "join(', ', 'name')", "last", "length", "list", "lower", "map('upper')", "map('int')", "map(attribute='name')", "map(attribute='in.k', default=9)", "map('string')", "max", "min", "max(attribute='age')",
               "reject('none')", "rejectattr('age')", "replace('l', 'LL')", "replace('', '.')", "replace('l', 'L', 1)", "reverse", "round", "round(1)", "round(-1)", "round(0, 'ceil')", "round(1, 'floor')", "safe", "select", "select('string')", "select('odd')", "select('in', [1, 2])",
               "selectattr('age')", "selectattr('age', 'gt', 3)", "selectattr('name', 'equalto', 'al')", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='name')", "sort(attribute='age,name')", "string", "sum", "sum(attribute='age')", "sum(start=5)", "title", "tojson", "tojson(indent=2)",
               "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "trim", "trim('H')", "truncate(5)", "truncate(5, true, '')", "unique", "unique(attribute='age')", "upper", "urlencode", "wordcount", "xmlattr", "batch(2)", "batch(2, 'f')", "slice(2)", "slice(2, 0)", "groupby('age')", "groupby('name')", "filesizeformat",
               "filesizeformat(true)", "format(1)", "format(1, 'a')", "attr('upper')", "d"]
    methods = ["upper()", "lower()", "title()", "strip()", "lstrip()", "rstrip('d')", "split()", "split(',')", "split('l', 1)", "rsplit('l', 1)", "rsplit(none, 1)", "splitlines()", "splitlines(true)", "startswith('He')", "endswith(('d', 'x'))", "startswith('l', 2)", "replace('o', '0')", "find('o')", "find('o', 5)", "find('zz')", "rfind('o')",
               "index('l')", "count('l')", "count('')", "partition(', ')", "rpartition('o')", "zfill(15)", "center(20, '*')", "ljust(15)", "rjust(15, '.')", "capitalize()", "swapcase()", "isdigit()", "isalpha()", "isupper()", "islower()", "istitle()", "isspace()", "expandtabs(4)", "removeprefix('He')", "removesuffix('ld')", "join(['a', 'b'])",
               "join('xyz')", "format(1)", "items()", "keys()", "values()", "get('a')", "get('zz')", "get('zz', 5)", "copy()", "index(1)", "count(1)", "append(1)", "pop()", "update({})", "a", "items", "b", "name", "upper", "_private", "__class__", "is_integer()"]
    tests = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "iterable", "sequence", "callable", "odd", "even", "divisibleby(3)", "divisibleby 2", "lower", "upper", "eq(7)", "== 7", "ne 7", "lt 3", "ge 2", "gt(1)", "in [1, 7]", "in 'Hello'", "sameas none", "escaped", "filter", "test"]
    binary = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in", "is sameas"]
    literals = ["1", "-2", "0", "3.5", "'ab'", '"l"', "[1, 2]", "{'a': 1, 'k': [2]}", "(1, 'x')", "()", "true", "none", "1_000", "0b101", "1e3", "'%s and %r'", "'%5.1f|%-4d|%+d|%x'", "'{}-{:>4}'", "'a' 'b'", "range(4)", "dict(x=1)", "[]", "namespace(q=1)", "'\\n\\t\\x41\\u00e9\\\\'"]
    specifications = ["", "5", "<6", ">6", "^7", "*^9", "05", "+", "+.2f", ".3", "e", ".2e", "g", "%", ",", "_", "x", "#x", "b", "08.3f", "s", ".2s", "d", "c", ",.1f", "=+8", "G", ".0f", "012,", "n", "o", "X", "2"]

    def operand(depth):
        kind = random.random()
        if depth <= 0 or kind < 0.30:
            return random.choice(names) if random.random() < 0.75 else random.choice(literals)
        inner = operand(depth - 1)
        wrapped = f"({inner})" if random.random() < 0.5 else inner
        if kind < 0.48:
            return f"{wrapped}|{random.choice(filters)}"
        if kind < 0.58:
            return f"{random.choice(names)}.{random.choice(methods)}"
        if kind < 0.66:
            bounds = [random.choice(["", "", str(random.randint(-4, 6)), "i", "none"]) for _ in range(3)]
            return f"{random.choice(names)}[{':'.join(bounds[:random.randint(2, 3)])}]" if random.random() < 0.6 else f"{random.choice(names)}[{operand(0)}]"
        if kind < 0.72:
            return f"{wrapped} is {random.choice(['', 'not '])}{random.choice(tests)}"
        if kind < 0.76:
            return f"({inner} if {operand(depth - 1)} else {operand(depth - 1)})"
        if kind < 0.80:
            return f"{random.choice(['not ', '-', '+'])}{inner}"
        if kind < 0.83:
            return f"'{{:{random.choice(specifications)}}}'.format({inner})"
        if kind < 0.86:
            flags = random.choice(["", "5", "-5", "05", "+", ".2", "8.3", "#", " "])
            return f"('%{flags}{random.choice('sdrifegxXocEG%')}' % ({inner}))"
        if kind < 0.89:
            return f"[{inner}, {operand(depth - 1)}]"
        left, sign, right = inner, random.choice(binary), operand(depth - 1)
        return f"{left} {sign} {right}" if random.random() < 0.5 else f"({left} {sign} {right})"

    made = 0
    while made < count:
        template = f"{{{{ {operand(3)} }}}}"
        # Python would compute 7 ** 9007199254740993 to its last digit.
        if template.count("**") > 1 or "**" in template and "big" in template:
            continue
        made += 1
        yield f"expression {made}", template, VALUES


def layouts(random, count):
    """Data, comments, blocks and prints with all signs of white space control, in random order."""
    pieces = ["text", " ", "  ", "\n", "\n\n", "\t", "\r\n", "{", "}", "%}", "-", "x\n  ", "  y", "\u00a0", "\u2003\n"]

    def tag(begin, inner, end):
        return begin + random.choice(["", "", "-", "+"]) + random.choice(["", " ", "\n "]) + inner + random.choice([" ", "", "\n"]) + random.choice(["", "", "-", "+"]) + end

    for i in range(count):
        out, open_ifs = [], 0
        for _ in range(random.randint(1, 14)):
            kind = random.random()
            if kind < 0.5:
                out.append(random.choice(pieces))
            elif kind < 0.6:
                out.append(tag("{#", random.choice(["c", "", "a # b", "{{ x }}"]), "#}"))
            elif kind < 0.72:
                out.append(tag("{{", random.choice(["1", "'a\\n'", "{'a': {'b': 1}}['a']", "-1"]), "}}"))
            elif kind < 0.78:
                out.append(tag("{%", "raw", "%}") + random.choice(["\n {{ x }} \n", "", " {% if %}"]) + tag("{%", "endraw", "%}"))
            elif kind < 0.86 and open_ifs:
                out.append(tag("{%", "endif", "%}"))
                open_ifs -= 1
            elif kind < 0.94:
                out.append(tag("{%", "if true", "%}"))
                open_ifs += 1
            else:
                out.append(tag("{%", random.choice(["set x = 1", "set y", "else", "for i in [1, 2]", "endfor", "endset"]), "%}"))
        out += [tag("{%", "endif", "%}") for _ in range(open_ifs)]
        yield f"layout {i}", "".join(out), {}


STATEMENTS = """
{{ a }}{% set a = 1 %}{{ a }}
{% for i in [1, 2] %}{{ a }}{% set a = i %}{{ a }}{% endfor %}{{ a }}
{% set a = 0 %}{% for i in [1, 2] %}{{ a }}{% set a = i %}{{ a }}{% endfor %}{{ a }}
{% if i == 7 %}{% set a = 1 %}{% endif %}{{ a }}
{% if false %}{% set i = 1 %}{% endif %}{{ i }}
{% macro m() %}{{ q }}{% endmacro %}{{ m() }}{% set q = 1 %}{{ m() }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3) }}{{ m(a=4) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}({{ caller(1, 2) }}){% endmacro %}{% call(x, y=5) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m() %}no{% endmacro %}{% call m() %}x{% endcall %}
{% macro m(x) %}{% if x %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro m() %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}
{% macro a() %}{% macro b() %}in{% endmacro %}{{ b() }}{% endmacro %}{{ a() }}{{ b }}
{% set x %}a{% set y = 1 %}{% endset %}{{ x }}{{ y }}
{% set x | upper | replace('A', 'b') %}a{{ i }}{% endset %}{{ x }}
{% filter upper %}a{{ s }}{% set k = 1 %}{% endfilter %}{{ k }}
{% filter replace('a', 'b') | upper %}aa{% endfilter %}
{% with a = 1, b = i %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}
{% with %}{{ i }}{% endwith %}
{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b, c = 2, 3 %}{{ ns.a }}{{ ns.b }}{{ c }}{{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.zz }}|{{ ns.zz.yy }}
{% set d.a = 1 %}
{% set q.a = 1 %}
{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a * x %}{% endfor %}{{ ns.a }}
{% set ns = namespace(x=0) %}{% for v in l if ns.x < 2 %}{% set ns.x = ns.x + 1 %}{{ v }}{% endfor %}
{% set ns = namespace(x=0) %}{% for v in l if ns.x < 2 %}{% set ns.x = ns.x + 1 %}{{ v }}{{ loop.last }}{% endfor %}
{% for a, b in d.items() %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2], 'xy', (3, 4)] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle(1, 2) }}{{ loop.changed(x > 1) }} {% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{% endfor %}
{% for x in l %}{{ loop }}{% endfor %}
{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in l %}{% set outer = loop %}{% for y in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}
{% for x in l %}{% continue %}{% else %}none{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}
{% for x in l %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}
{% for x in l %}{% set y %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endset %}{{ y }}{% endfor %}
{% break %}
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% for loop in l %}{% endfor %}
{% set loop = 5 %}{{ loop }}
{% for x in missing %}x{% else %}none{% endfor %}
{% for x in n %}x{% endfor %}
{% for x in 5 %}x{% endfor %}
{% for x in l recursive %}{{ x }}{{ loop.depth }}{% if x == 3 %}{{ loop([8, 9]) }}{% endif %}{% endfor %}
{% for x in l %}{{ loop(l) }}{% endfor %}
{% for c in s %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{% else %}none{% endfor %}
{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% if n %}a{% elif z %}b{% elif i %}c{% else %}d{% endif %}
{% if n %}a{% else %}b{% elif i %}c{% endif %}
{% if l, %}a{% endif %}
{% print 1, 'a' %}
{% generation %}{% set g = 1 %}x{{ g }}{% endgeneration %}{{ g }}
{% raw %}{{ a }}{% endraw %}{# {{ x #}{#- y -#} z
{{ 1 }}{{ 1, 2 }}{{ (1,) }}{{ () }}
{{ }}
{{ 1 + }}
{{ a b }}
{{ 'a
{{ [1, 2 }}
{{ {1: 2, 'a'} }}
{% if %}{% endif %}
{% if 1 %}
{% endif %}
{% for x l %}{% endfor %}
{% set 1 = 2 %}
{% set true = 2 %}
{% set a.b.c = 2 %}
{% nothing %}
{% include 'x' %}
{{ x.1 }}{{ l.1 }}{{ l.0 }}{{ l[0, 1] }}
{{ 1 is odd is even }}
{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 2 * 3 + 4 ~ 5 }}{{ 1 + 2 ~ 3 * 4 }}
{{ not 1 == 2 }}{{ not (1 and 0) or 5 }}{{ 1 < 2 < 3 == 3 != 4 }}
{{ 1 if 0 }}{{ 1 if 0 else 2 if 0 else 3 }}{{ (1 if 0).x }}
{{ l|first|string ~ l|last }}{{ o|first }}{{ (o|first).x }}{{ o|last }}{{ o|max }}
{{ range(3)|list }}{{ range(5, 1, -2)|list }}{{ range(0) }}{{ range(3)[1] }}{{ range(10)[2:5]|list }}{{ 2 in range(3) }}{{ range(100001) }}
{{ range(1, 2, 0) }}
{{ range(3)|length }}{{ range(3)|last }}{{ range(3)|reverse|list }}{{ range(3) == range(0, 3) }}
{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)], y=2) }}{{ dict(d)|length }}
{{ [*l] }}
{{ dict(*[[('x', 1)]]) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{{ raise_exception('oops') }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %A %j %p %%') }}{{ strftime_now('') }}{{ strftime_now('%d %b %Y') }}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{{ 'yes' if o|select('odd') }}
{{ (l|map('string'))|length }}
{{ l|map('nothing')|list }}
{{ l|map }}
{{ (l|map)|list }}
{{ [1, 'a']|map('abs')|first }}
{{ n|map('upper')|list }}{{ missing|select|list }}
{% set x = l.append(4) %}{{ l }}
{{ d.update({'q': 1}) }}
{{ d.pop }}|{{ d.pop is defined }}|{{ l.sort }}|{{ l.__class__ }}|{{ s.__len__ }}
{{ d.items }}{{ 'x' if d.items is callable }}{{ d['items'] }}
{{ d.get('a') }}{{ d.get('q') }}{{ d.get('q', 1) }}{{ d.a }}{{ d.q }}|{{ d.q.q }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing + 1 }}
{{ missing ~ 1 }}{{ missing == missing }}{{ missing in [1] }}{{ 1 in missing }}{{ missing|length }}{{ missing|list }}{{ missing|upper }}{{ not missing }}{{ missing or 5 }}
{{ missing() }}
{{ missing < 1 }}
{{ -missing }}
{{ missing|tojson }}
{{ [missing] }}{{ {'a': missing} }}
{{ 1|foo }}
{% if 0 %}{{ 1|foo }}{% endif %}ok
{% if 1 %}{{ 1|foo }}{% endif %}
{% if 0 %}{% for x in l %}{{ 1|foo }}{% endfor %}{% endif %}
{{ 1|foo if 0 else 2 }}
{{ 1 is foo }}
{% if 0 and 1 is foo %}{% endif %}ok
{{ ('<'|safe) + '<' }}{{ '<' + ('<'|safe) }}{{ '<'|safe ~ '<' }}{{ ('%s'|safe) % '<' }}{{ ('<'|e)|upper }}{{ ['<'|e] }}{{ ('a<'|safe).replace('a', '<') }}{{ ('{}'|safe).format('<') }}{{ ('-'|safe).join(['<', '>'|safe]) }}
{{ '<a href="x">'|e }}{{ ('<'|e)|e }}{{ ('<'|e)|forceescape }}{{ 5|e }}{{ n|safe }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ 7 // -2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ -7 % 3 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ 5 % 2.5 }}{{ 2 ** -1 }}{{ 0 ** 0 }}{{ 2 ** 0.5 }}{{ 6 / 3 }}
{{ 1e16 }}{{ 1e15 }}{{ 1.5e300 * 1e10 }}{{ 1e-4 }}{{ 1e-5 }}{{ 0.1 + 0.2 }}{{ -0.0 }}{{ 1e22 }}{{ 123456789.123456789 }}
{{ true + true }}{{ true ~ false }}{{ 1 == 1.0 }}{{ true == 1 }}{{ '1' == 1 }}{{ none == missing }}{{ [1] == (1,) }}{{ {1: 2} == {1.0: 2} }}{{ {true: 1}[1] }}
{{ {'a': 1}.a }}{{ {1: 'x'}[1] }}{{ {1: 'x'}['1'] }}{{ {(1, 2): 3}[(1, 2)] }}
{{ {[1]: 2} }}
{{ d[[1]] }}
{{ [1] in d }}
{{ 'a' in 5 }}
{{ 1 in 'a' }}
{{ [1, [2, 'x']] < [1, [2, 'y']] }}{{ 'a' < 'b' }}{{ (1, 2) < (1, 3) }}
{{ 1 < 'a' }}
{{ {} < {} }}
{{ 'x' * 3 }}{{ 3 * 'x' }}{{ [1] * 2 }}{{ 'x' * -1 }}{{ (1,) * 2 }}
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ s[0] }}{{ s[-1] }}{{ s[99] }}{{ u[1] }}{{ u[-1] }}{{ u[::-1] }}{{ u[1:] }}{{ u[::2] }}{{ l[::-2] }}{{ l[5:1:-1] }}{{ l[-2:] }}{{ l[:-1] }}
{{ s['a':] }}
{{ l[::0] }}
{{ d[1:] }}
{{ n[1:] }}
{{ n.x }}{{ n['x'] }}{{ 5 .x }}{{ l.x }}{{ l['x'] }}{{ l['1'] }}|
{{ "it's" }}{{ ["it's", 'a"b', 'both \\' "', 'nl\\n', '\\x07', '\\u200b', '\\U0001f600'] }}
{{ 'a\\qb\\x41\\101\\u00e9\\N' }}
{{ 'a\\N{DASH}' }}
{{ 'a\\x4' }}
{{ '\\ud800' }}
{{ '%s' % 'a' }}{{ '%s %s' % ('a', 1) }}{{ '%(x)s' % {'x': 5} }}{{ '%d' % 3.9 }}{{ '%5.2f|%-5d|%+d|%x|%o|%e|%g' % (1.234, 5, 6, 255, 8, 12345.678, 0.0001) }}{{ '%%' % () }}{{ '%c%c' % (65, 'b') }}{{ '%r' % 'a' }}{{ '%*d' % (5, 3) }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ '%d' % 'a' }}
{{ '%q' % 1 }}
{{ 'x' % 1 }}
{{ 'x' % d }}{{ 'x' % l }}
{{ '{} {}'.format(1, 2) }}{{ '{1} {0}'.format(1, 2) }}{{ '{a}{b[k]}{c.x}'.format(a=1, b={'k': 2}, c={'x': 3}) }}{{ '{:>5}|{:^5}|{:05d}|{:,}|{:.1%}'.format('a', 'b', 42, 1234567, 0.256) }}{{ '{{}}'.format() }}{{ '{!r:>5}'.format('a') }}{{ '{:{}}'.format('x', 5) }}
{{ '{}'.format() }}
{{ '{'.format(1) }}
{{ '{0} {}'.format(1, 2) }}
{{ '{:d}'.format('a') }}
{{ '{.__class__}'.format(1) }}
{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ 'a b c'.split(none, 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' a b  c '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}{{ 'a'.split(sep='a', maxsplit=1) }}
{{ 'a'.split('') }}
{{ 'a\\nb\\r\\nc\\x0bd\\u2028e\\n'.splitlines() }}{{ 'a\\n\\nb'.splitlines(true) }}
{{ 'abc'.find('c') }}{{ 'abc'.find('') }}{{ 'abc'.find('', 3) }}{{ 'abc'.find('', 4) }}{{ 'abcabc'.rfind('bc') }}{{ 'abc'.index('b') }}{{ 'aaa'.count('aa') }}{{ 'abc'.find('b', -2) }}{{ 'abc'.find('b', 0, 1) }}
{{ 'abc'.index('z') }}
{{ 'x'.upper(1) }}
{{ 'x'.nothing() }}
{{ 'x'.encode }}|
{{ '3.7'|int }}{{ '12abc'|int }}{{ '12abc'|int(-1) }}{{ ' 12 '|int }}{{ '1_000'|int }}{{ '0b11'|int(0, 2) }}{{ '0x1f'|int(base=16) }}{{ 'z'|int(base=36) }}{{ n|int }}{{ true|int }}{{ 3.99|int }}{{ -3.99|int }}{{ '1e3'|int }}{{ ''|int }}{{ 'inf'|int }}
{{ '1.5'|float }}{{ 'x'|float }}{{ 'x'|float(2.0) }}{{ 'inf'|float }}{{ '-nan'|float }}{{ '1_0.5'|float }}{{ '1e400'|float }}{{ '.5'|float }}{{ '5.'|float }}{{ l|float }}
{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 1234.5678|round(-2) }}{{ 5|round }}{{ 15|round(-1) }}{{ 25|round(-1) }}{{ -2.5|round }}{{ 1e300|round(2) }}{{ 42.55|round(1, 'floor') }}{{ 42.55|round(1, 'ceil') }}{{ 7|round(1, 'floor') }}{{ 1250.0|round(-2) }}{{ 0.5|round(-1) }}{{ 5.0|round(-1) }}{{ 15.0|round(-1) }}
{{ 1|round(0, 'up') }}
{{ 'a'|round }}
{{ d|tojson }}{{ d|tojson(indent=2) }}{{ mix|tojson(indent=1) }}{{ u|tojson }}{{ u|tojson(ensure_ascii=true) }}{{ p|tojson(indent=2) }}{{ d|tojson(separators=(',', ':'), sort_keys=true) }}{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}{{ (1, 2)|tojson }}{{ 1e20|tojson }}{{ d|tojson(indent='--') }}{{ [[], {}]|tojson(indent=0) }}
{{ {(1,): 2}|tojson }}
{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}
{{ range(2)|tojson }}
{{ d.items()|tojson }}
{{ ('inf'|float)|tojson }}{{ ('nan'|float)|tojson }}
{{ d.items() }}{{ d.keys() }}{{ d.values() }}{{ d.items()|length }}{{ d.items()|list }}{{ d.items()|first }}{{ d.keys()|last }}{{ 'a' in d.keys() }}{{ d.items()[0] }}|{{ p.items() }}{{ 'x' if p.items() }}{{ d.keys()|sort }}
{{ r|groupby('age', default=0) }}{{ r|groupby('name') }}{% for g in r|groupby('name') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }}{% endfor %}
{{ r|sort(attribute='age') }}
{{ r|map(attribute='age')|list }}{{ r|map(attribute='age', default=1)|sum }}{{ r|map(attribute='in.k')|list }}{{ m|sort }}{{ m|sort(true) }}{{ m|unique|list }}{{ m|max }}{{ m|min(true) }}{{ l|sum(start=10) }}{{ 'bca'|sort }}{{ d|sort }}
{{ mix|sort }}
{{ s|indent }}{{ 'a\\nb\\n\\nc'|indent(2) }}{{ 'a\\nb'|indent('> ', true) }}{{ 'a\\n\\nb'|indent(1, blank=true) }}{{ ''|indent }}
{{ 'foo bar baz'|truncate(9) }}{{ 'foo bar baz'|truncate(5, true) }}{{ 'foo bar baz qux quux'|truncate(9) }}{{ 'foobarbazquxquux'|truncate(9) }}{{ 'foo bar baz qux'|truncate(9, leeway=0, end='!') }}
{{ 'x'|truncate(1) }}
{{ 'foo-bar (baz) <qux>'|title }}{{ "it's o'neil"|title }}{{ "it's"|capitalize }}{{ 'ONE two'|capitalize }}{{ "it's o'neil".title() }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }}{{ [1, 2, 3]|batch(2, 'x')|list }}{{ [1, 2, 3, 4, 5]|slice(3)|list }}{{ [1, 2]|slice(3, 'x')|list }}{{ o|batch(2)|list }}
{{ {'a': 'x y', 'b': '/é'}|urlencode }}{{ 'a b/é?'|urlencode }}{{ {'class': 'a<', 'x': none, 'y': 1}|xmlattr }}{{ 1000|filesizeformat }}{{ 1536|filesizeformat(true) }}{{ 1|filesizeformat }}{{ 1e30|filesizeformat }}
{{ 'é'|length }}{{ '😀é'|list }}{{ '😀é'|reverse }}{{ '😀'|urlencode }}{{ u|upper }}{{ 'ß'|upper }}{{ 'İ'|lower|length }}
{{ i is number }}{{ t is number }}{{ t is integer }}{{ f is float }}{{ n is none }}{{ d is mapping }}{{ l is sequence }}{{ s is sequence }}{{ d is sequence }}{{ missing is sequence }}{{ 5 is iterable }}{{ missing is iterable }}{{ range is callable }}{{ 'upper' is filter }}{{ 'zz' is test }}
{{ 'A' is upper }}{{ 5 is upper }}{{ n is lower }}{{ 3 is odd }}{{ 3.0 is odd }}{{ 4 is divisibleby 2 }}{{ 5 is in l }}{{ i is eq 7 }}{{ i is not eq 7 }}{{ none is sameas none }}{{ (l) is sameas l }}
{{ 'a' is odd }}
{{ loop }}{{ self_ }}{{ caller }}|
{{ range }}
{{ 9223372036854775807 }}{{ -9223372036854775807 }}
{{ 1_0 }}{{ 0x_1f }}{{ 0o17 }}{{ 1_0.2_5 }}{{ 1E2 }}
{{ 012 }}
{{ 1.}}
{{ 1._x }}
{{ a$b }}
{{ é }}
{{ "a" "b" 'c' }}
{{ s|lower|upper|length }}{{ s.lower().upper()|length }}{{ (s|lower).split(',')[0]|title }}
{{ {'a': [1, {'b': (2,)}]}.a[1].b[0] }}{{ {}|default(1) }}{{ ''|default(1, true) }}{{ n|default(1) }}{{ missing|default(missing2)|default(3) }}{{ d.zz|default('q') }}
""".strip("\n")


def statements():
    for i, line in enumerate(STATEMENTS.split("\n")):
        yield f"statement {i + 1}", line, VALUES

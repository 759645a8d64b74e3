#!/usr/bin/python3
"""Writes src/jinja/unicode_table.cpp from the character database of this Python: generate_case_table.py > FILE

Templates treat text as Python 3.11 does (Unicode 14). Run again with another Python to follow another version.
"""
import unicodedata

FLAGS = ["is_alpha", "is_decimal", "is_digit", "is_numeric", "is_printable", "is_lower", "is_upper", "is_title"]
SKIPPED_BY_SIGMA = 1 << len(FLAGS)
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def flags_of(char):
    tests = [char.isalpha(), char.isdecimal(), char.isdigit(), char.isnumeric(), char.isprintable(), char.islower(), char.isupper(), unicodedata.category(char) == "Lt"]
    flags = sum(1 << i for i, holds in enumerate(tests) if holds)
    # A capital sigma becomes final after a cased letter, and characters that are ignored between the two.
    after_letter, alone = ("A" + char + "\u03a3").lower()[-1], (char + "\u03a3").lower()[-1]
    return flags | (SKIPPED_BY_SIGMA if after_letter == "\u03c2" != alone else 0)


def runs():
    before = None
    for code_point in range(0x110000):
        flags = flags_of(chr(code_point)) if not 0xD800 <= code_point < 0xE000 else 0
        if flags != before:
            yield code_point, flags
        before = flags


def stretches(pairs):
    """(code point, what to add) -> [first, last, step, what to add]."""
    found = []
    for code_point, delta in pairs:
        if found and found[-1][3] == delta and (code_point - found[-1][1] == found[-1][2] or found[-1][0] == found[-1][1] and code_point - found[-1][1] <= 2):
            found[-1][1:3] = code_point, code_point - found[-1][1]
        else:
            found.append([code_point, code_point, 1, delta])
    return found


def written(rows):
    lines, line = [], " "
    for row in rows:
        text = " {" + ", ".join(f"{n:#x}" if n >= 0 else str(n) for n in row) + "},"
        if len(line + text) > 118:
            lines.append(line)
            line = " "
        line += text
    return "\n".join([*lines, line])


def main():
    simple = {"upper": [], "lower": [], "title": []}
    special = []
    for code_point in CODE_POINTS:
        char = chr(code_point)
        mapped = {"upper": char.upper(), "lower": char.lower(), "title": char.title()}
        if max(map(len, mapped.values())) > 1:
            special.append([code_point, *[ord(c) for kind in ("upper", "lower", "title") for c in mapped[kind].ljust(3, "\0")]])
            continue
        for kind, result in mapped.items():
            if result != (mapped["upper"] if kind == "title" else char):
                simple[kind].append((code_point, ord(result) - code_point))
    print("// Properties and case of characters, Unicode " + unicodedata.unidata_version + ". Written by tools/generate_case_table.py.\n"
          '#include "jinja/unicode_table.hpp"\n\nnamespace weft::jinja {\n\n// clang-format off')
    print("namespace {\n")
    print("constexpr PropertyRun kRuns[] = {\n" + written(runs()) + "\n};\n")
    for kind, pairs in simple.items():
        print(f"constexpr CaseStretch k{kind.title()}Stretches[] = {{\n" + written(stretches(pairs)) + "\n};\n")
    print("constexpr SpecialCase kSpecial[] = {\n" + written(special) + "\n};\n")
    print("}  // namespace\n// clang-format on\n")
    print("std::span<const PropertyRun> property_runs() { return kRuns; }")
    for kind in simple:
        print(f"std::span<const CaseStretch> {kind}_stretches() {{ return k{kind.title()}Stretches; }}")
    print("std::span<const SpecialCase> special_cases() { return kSpecial; }\n\n}  // namespace weft::jinja")


if __name__ == "__main__":
    main()

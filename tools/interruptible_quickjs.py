#!/usr/bin/python3
"""tools/interruptible_quickjs.py FILE: makes long functions of QuickJS-NG end when the time of a script is over.

QuickJS asks its interrupt handler after a number of calls and loops. Some functions take long for each of them: products of large
BigInts, copies of long strings, searches, sorting. Here they count their work against that number, and loops that may take very long
ask by themselves. JS_DropPendingJobs is new. A text that is not found, or found more than once, is an error.
"""
import pathlib
import re
import sys

COUNT = """
static inline void js_count_work(JSContext *ctx, size_t work)
{
    ctx->interrupt_counter = ctx->interrupt_counter > 0 && work < (size_t)ctx->interrupt_counter ?
        ctx->interrupt_counter - (int)work : 0;
}
"""
DROP = """
void JS_DropPendingJobs(JSRuntime *rt)
{
    struct list_head *el, *el1;
    int i;
    list_for_each_safe(el, el1, &rt->job_list) {
        JSJobEntry *e = list_entry(el, JSJobEntry, link);
        list_del(&e->link);
        for(i = 0; i < e->argc; i++)
            JS_FreeValueRT(rt, e->argv[i]);
        js_free_rt(rt, e);
    }
}
"""
BODY = r"[^{};]*\)\s*\{(?:\n    [A-Za-z][^;(){}=]*;)*\n"  # the parameters of a function, and its declarations


def function(head):
    return re.escape(head) + BODY


# Where (a pattern, whose match stays), and what follows it.
CHANGES = [
    (r"\nstruct JSContext \{(?:.*\n)*?\};\n", COUNT),
    (function("void *js_malloc(JSContext *ctx,"), "    js_count_work(ctx, size >> 10);\n"),
    (function("void *js_realloc(JSContext *ctx,"), "    js_count_work(ctx, size >> 10);\n"),
    (function("static JSString *js_alloc_string(JSContext *ctx,"), "    js_count_work(ctx, (size_t)max_len >> 8);\n"),
    (function("static int string_buffer_concat(StringBuffer *s,"), "    if (to > from) js_count_work(s->ctx, (size_t)(to - from) >> 8);\n"),
    (function("static JSBigInt *js_bigint_mul(JSContext *ctx,"), "    js_count_work(ctx, (size_t)a->len * b->len >> 6);\n"),
    (r"(?s)static JSBigInt \*js_bigint_divrem\(.*?    nb = b->len;\n", "    js_count_work(ctx, (size_t)na * nb >> 6);\n"),
    (r"(?s)static JSBigInt \*js_bigint_from_string\(.*?    n_digits = n_digits1;\n", "    js_count_work(ctx, n_digits1 * n_digits1 >> 16);\n"),
    (r"(?s)static JSValue js_bigint_to_string1\(.*?        r = JS_VALUE_GET_PTR\(val\);\n", "        js_count_work(ctx, (size_t)r->len * r->len >> 6);\n"),
    (r"(?s)static int js_array_cmp_generic\(.*?    if \(psc->exception\)\n        return 0;\n", "    if (js_poll_interrupts(ctx))\n        goto exception;\n"),
    (r"if \(tag_is_string\(tag1\) && tag_is_string\(tag2\)\) \{\n(?=        if .*\n            res = js_string_compare)",
     "        js_count_work(ctx, string_rope_get_len(op1) >> 8);\n"),
    (r"    case JS_TAG_STRING_ROPE:\n        \{\n(?=            if \(!tag_is_string\(tag2\)\) \{\n                res = false)",
     "            js_count_work(ctx, string_rope_get_len(op1) >> 8);\n"),
    (r"for \(i = start;; i \+= inc\) \{\n(?=            if \(!string_cmp)",
     "            js_count_work(ctx, v_len >> 8);\n            if (js_poll_interrupts(ctx)) goto fail;\n"),
    (r"for \(i = start;; i\+\+\) \{\n(?=            if \(!string_cmp)",
     "            js_count_work(ctx, v_len >> 8);\n            if (js_poll_interrupts(ctx)) goto fail;\n"),
    (r"(?s)static JSValue js_string_replace\(.*?(?=        if \(functionalReplace\) \{\n            args\[0\])",
     "        if (b->error_status || js_poll_interrupts(ctx))\n            goto exception;\n"),
    # A search that is late has found nothing; the script ends at the next poll.
    (r"(?s)static int string_indexof\(JSString \*p1.*?        if \(j < 0 \|\| j \+ len2 > len1\)\n            break;\n",
     "        js_count_work(ctx, len2 >> 8);\n        if (js_poll_interrupts(ctx))\n            break;\n"),
    (r"(?s)static JSValue js_call_c_function\(JSContext \*ctx, JSValueConst func_obj,[^;]*?\n\{.*?    p = JS_VALUE_GET_OBJ\(func_obj\);\n",
     "    js_count_work(ctx, 1000);\n"),
]


def change(text):
    for pattern, added in CHANGES:
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            sys.exit(f"the source of QuickJS-NG is not as expected: {len(found)} places for {pattern}")
        text = text[:found[0].end()] + added + text[found[0].end():]
    text, count = re.subn(r"\bstring_indexof\((?=sp, |JSString)", lambda m: m[0] + "@", text)
    if count != 3:
        sys.exit(f"the source of QuickJS-NG is not as expected: {count} places for string_indexof")
    text = text.replace("string_indexof(@JSString", "string_indexof(JSContext *ctx, JSString").replace("string_indexof(@", "string_indexof(ctx, ")
    text, count = re.subn(r"(static int JS_TryGetPropertyInt64\([^{]*\n\{)", r"\1 if (js_poll_interrupts(ctx)) return -1;", text)
    if count != 1:
        sys.exit("the source of QuickJS-NG is not as expected: JS_TryGetPropertyInt64")
    return text + DROP


def main():
    path = pathlib.Path(sys.argv[1])
    path.write_text(change(path.read_text("utf-8")), "utf-8")
    header = path.with_name("quickjs.h")
    text = header.read_text("utf-8")
    anchor = "JS_EXTERN int JS_ExecutePendingJob("
    if text.count(anchor) != 1:
        sys.exit("quickjs.h is not as expected: JS_ExecutePendingJob")
    header.write_text(text.replace(anchor, "JS_EXTERN void JS_DropPendingJobs(JSRuntime *rt);\n" + anchor), "utf-8")


if __name__ == "__main__":
    main()

/* The C interface in use, and misused. Prints what fails; the number of failures is the exit status. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/c.h>

static int failures = 0;

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);        \
      ++failures;                                                                 \
    }                                                                             \
  } while (0)
#define OK(call)                                                                                                   \
  do {                                                                                                             \
    const weft_status status_ = (call);                                                                            \
    if (status_ != WEFT_OK) {                                                                                      \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, weft_status_name(status_), weft_error_message());   \
      ++failures;                                                                                                  \
    }                                                                                                              \
  } while (0)
/* The call fails with that status, and the message holds the text. */
#define FAILS(call, wanted, text)                                                                                  \
  do {                                                                                                             \
    const weft_status status_ = (call);                                                                            \
    if (status_ != (wanted) || !strstr(weft_error_message(), text)) {                                              \
      printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, weft_status_name(status_), weft_error_message());   \
      ++failures;                                                                                                  \
    }                                                                                                              \
  } while (0)

static const weft_tensor kNone = {0};

static weft_tensor floats(const float* values, int64_t rows, int64_t columns) {
  const int64_t shape[2] = {rows, columns};
  weft_tensor result = {0};
  OK(weft_tensor_from_memory(values, (size_t)(rows * columns) * sizeof(float), shape, 2, "f32", "cpu", &result));
  return result;
}

static weft_tensor call1(const char* op, weft_tensor x) {
  weft_tensor result = {0};
  size_t count = 0;
  OK(weft_call(op, &x, 1, NULL, 0, &result, 1, &count));
  CHECK(count == 1);
  return result;
}
static weft_tensor call2(const char* op, weft_tensor x, weft_tensor y) {
  const weft_tensor inputs[2] = {x, y};
  weft_tensor result = {0};
  size_t count = 0;
  OK(weft_call(op, inputs, 2, NULL, 0, &result, 1, &count));
  return result;
}

static void test_version(void) {
  CHECK(weft_abi_version() == WEFT_ABI_VERSION);
  CHECK(strlen(weft_version()) > 0);
  CHECK(strcmp(weft_status_name(WEFT_SHAPE_ERROR), "WEFT_SHAPE_ERROR") == 0);
  CHECK(strcmp(weft_status_name((weft_status)77), "unknown") == 0);
}

static void test_tensors(void) {
  const float values[6] = {1, 2, 3, 4, 5, 6};
  const weft_tensor x = floats(values, 2, 3);
  int64_t shape[4] = {9, 9, 9, 9};
  size_t rank = 0, bytes = 0;
  OK(weft_tensor_shape(x, shape, 4, &rank));
  CHECK(rank == 2 && shape[0] == 2 && shape[1] == 3 && shape[2] == 9);
  OK(weft_tensor_shape(x, NULL, 0, &rank));
  OK(weft_tensor_bytes(x, &bytes));
  CHECK(bytes == 24);
  const char *dtype = NULL, *device = NULL, *text = NULL;
  OK(weft_tensor_dtype(x, &dtype));
  OK(weft_tensor_device(x, &device));
  CHECK(strcmp(dtype, "f32") == 0 && strcmp(device, "cpu") == 0);
  OK(weft_tensor_text(x, &text));
  CHECK(strstr(text, "4") != NULL);

  const weft_tensor y = call2("mul", x, x);
  float read[6];
  OK(weft_tensor_read(y, read, sizeof read));
  CHECK(read[5] == 36);
  const void* view = NULL;
  OK(weft_tensor_view(y, &view));
  CHECK(((const float*)view)[2] == 9);
  const weft_tensor both[2] = {x, y};
  OK(weft_evaluate(both, 2));

  weft_tensor other = {0}, full = {0};
  OK(weft_tensor_share(x, &other));
  OK(weft_tensor_release(x));
  OK(weft_tensor_read(other, read, sizeof read));
  CHECK(read[0] == 1);
  OK(weft_tensor_full(2.5, NULL, 0, "f64", NULL, &full));
  double item = 0;
  OK(weft_tensor_item(full, &item));
  CHECK(item == 2.5);
  OK(weft_tensor_release(full));
  OK(weft_tensor_release(other));
  OK(weft_tensor_release(y));
}

static int released = 0;
static void count_release(void* context) { released += *(int*)context; }

static void test_borrowed(void) {
  static float memory[1024];
  for (int i = 0; i < 1024; ++i) memory[i] = (float)i;
  const int64_t shape[1] = {1024};
  int one = 1;
  weft_tensor x = {0};
  released = 0;
  OK(weft_tensor_borrow(memory, sizeof memory, shape, 1, "f32", count_release, &one, &x));
  const void* view = NULL;
  OK(weft_tensor_view(x, &view));
  CHECK(view == memory); /* no copy */
  const weft_tensor y = call1("sqrt", x);
  float read[1024];
  OK(weft_tensor_read(y, read, sizeof read));
  CHECK(read[81] == 9);
  /* A Variable made of it does not write into it. */
  weft_variable v = {0};
  OK(weft_variable_create(x, "v", true, &v));
  OK(weft_tensor_release(x));
  OK(weft_tensor_release(y));
  weft_tensor value = {0};
  OK(weft_variable_value(v, &value));
  weft_tensor next = call2("add", value, value);
  OK(weft_variable_assign(v, next));
  OK(weft_evaluate(NULL, 0));
  OK(weft_evaluate(&next, 1));
  CHECK(memory[3] == 3);
  OK(weft_tensor_release(next));
  OK(weft_tensor_release(value));
  OK(weft_variable_release(v));
  CHECK(released == 1);

  /* What cannot be shared is copied, and released at once. */
  static const unsigned char bools[3] = {0, 1, 7};
  const int64_t three[1] = {3};
  OK(weft_tensor_borrow(bools, 3, three, 1, "bool", count_release, &one, &x));
  CHECK(released == 2);
  unsigned char back[3];
  OK(weft_tensor_read(x, back, 3));
  CHECK(back[0] == 0 && back[1] == 1 && back[2] == 1);
  OK(weft_tensor_release(x));
  /* A failure leaves the memory to the caller. */
  FAILS(weft_tensor_borrow(memory, 12, shape, 1, "f32", count_release, &one, &x), WEFT_USAGE_ERROR, "4096");
  CHECK(released == 2);
}

static void test_dlpack(void) {
  const float values[4] = {1, 2, 3, 4};
  const weft_tensor x = floats(values, 2, 2);
  for (int versioned = 0; versioned < 2; ++versioned) {
    void* managed = NULL;
    OK(weft_tensor_to_dlpack(x, versioned != 0, &managed));
    weft_tensor y = {0};
    OK(weft_tensor_from_dlpack(managed, versioned != 0, &y));
    const void *a = NULL, *b = NULL;
    OK(weft_tensor_view(x, &a));
    OK(weft_tensor_view(y, &b));
    CHECK(a == b);
    OK(weft_tensor_release(y));
  }
  OK(weft_tensor_release(x));
}

static void test_attributes(void) {
  const float values[6] = {1, 5, 2, 4, 3, 6};
  const weft_tensor x = floats(values, 2, 3);
  const int64_t axes[1] = {1};
  const weft_attribute sum[2] = {{.name = "axes", .type = WEFT_INTEGERS, .integers = axes, .count = 1},
                                 {.name = "keepdim", .type = WEFT_BOOLEAN, .boolean = true}};
  weft_tensor results[2] = {{0}, {0}};
  size_t count = 0, rank = 0;
  OK(weft_call("sum", &x, 1, sum, 2, results, 1, &count));
  int64_t shape[2];
  OK(weft_tensor_shape(results[0], shape, 2, &rank));
  CHECK(rank == 2 && shape[1] == 1);
  float sums[2];
  OK(weft_tensor_read(results[0], sums, sizeof sums));
  CHECK(sums[0] == 8 && sums[1] == 13);
  OK(weft_tensor_release(results[0]));

  const weft_attribute sort[1] = {{.name = "descending", .type = WEFT_BOOLEAN, .boolean = true}};
  OK(weft_call("sort", &x, 1, sort, 1, results, 2, &count));
  CHECK(count == 2);
  float sorted[6];
  OK(weft_tensor_read(results[0], sorted, sizeof sorted));
  CHECK(sorted[0] == 5 && sorted[5] == 3);
  OK(weft_tensor_release(results[0]));
  OK(weft_tensor_release(results[1]));
  /* A language that writes the struct itself may store another byte for true. */
  weft_attribute odd[1] = {sort[0]};
  memset(&odd[0].boolean, 2, 1);
  OK(weft_call("sort", &x, 1, odd, 1, results, 2, &count));
  OK(weft_tensor_read(results[0], sorted, sizeof sorted));
  CHECK(sorted[0] == 5 && sorted[5] == 3);
  OK(weft_tensor_release(results[0]));
  OK(weft_tensor_release(results[1]));
  const uint64_t before = weft_live_handles();
  FAILS(weft_call("sort", &x, 1, NULL, 0, results, 1, &count), WEFT_USAGE_ERROR, "2 results");
  CHECK(weft_live_handles() == before);

  const int64_t pairs[4] = {1, 0, 0, 2};
  const weft_attribute pad[2] = {{.name = "padding", .type = WEFT_PAIRS, .integers = pairs, .count = 2},
                                 {.name = "mode", .type = WEFT_CHOICE, .word = "constant"}};
  OK(weft_call("pad", &x, 1, pad, 2, results, 1, &count));
  OK(weft_tensor_shape(results[0], shape, 2, &rank));
  CHECK(shape[0] == 3 && shape[1] == 5);
  OK(weft_tensor_release(results[0]));
  const double low[2] = {0, 0.5}, high[1] = {9};
  const weft_attribute ranges[2] = {{.name = "low", .type = WEFT_NUMBERS, .numbers = low, .count = 2},
                                    {.name = "high", .type = WEFT_NUMBERS, .numbers = high, .count = 1}};
  weft_tensor grid[4];
  FAILS(weft_call("histogramdd", &x, 1, ranges, 2, grid, 4, &count), WEFT_SHAPE_ERROR, "ranges of 2 axes for 3");
  OK(weft_call("histogramdd", &x, 1, ranges + 1, 1, grid, 4, &count));
  CHECK(count == 4);
  for (size_t i = 0; i < count; ++i) OK(weft_tensor_release(grid[i]));
  const weft_attribute cast[1] = {{.name = "dtype", .type = WEFT_DTYPE, .word = "f16"}};
  OK(weft_call("cast", &x, 1, cast, 1, results, 1, &count));
  OK(weft_tensor_release(results[0]));
  /* An optional input in the middle is left out. */
  const weft_tensor norm[3] = {x, {0}, {0}};
  OK(weft_call("layer_norm", norm, 3, NULL, 0, results, 1, &count));
  OK(weft_tensor_release(results[0]));

  FAILS(weft_call("sotfmax", &x, 1, NULL, 0, results, 1, &count), WEFT_USAGE_ERROR, "softmax");
  FAILS(weft_call("softmax", &x, 1, sort, 1, results, 1, &count), WEFT_USAGE_ERROR, "axis");
  const weft_attribute wrong[1] = {{.name = "axis", .type = WEFT_CHOICE, .word = "last"}};
  FAILS(weft_call("softmax", &x, 1, wrong, 1, results, 1, &count), WEFT_USAGE_ERROR, "axis");
  const weft_attribute outside[1] = {{.name = "axis", .type = WEFT_INTEGER, .integer = 9}};
  FAILS(weft_call("softmax", &x, 1, outside, 1, results, 1, &count), WEFT_SHAPE_ERROR, "axis");
  const weft_attribute no_type[1] = {{.name = "axis", .type = (weft_attribute_type)42}};
  FAILS(weft_call("softmax", &x, 1, no_type, 1, results, 1, &count), WEFT_USAGE_ERROR, "42");
  const weft_attribute no_name[1] = {{.name = NULL}};
  FAILS(weft_call("softmax", &x, 1, no_name, 1, results, 1, &count), WEFT_USAGE_ERROR, "null");
  const weft_attribute no_word[1] = {{.name = "dtype", .type = WEFT_DTYPE}};
  FAILS(weft_call("cast", &x, 1, no_word, 1, results, 1, &count), WEFT_USAGE_ERROR, "null");
  OK(weft_tensor_release(x));
}

static void test_table(void) {
  const size_t count = weft_op_count();
  CHECK(count > 300);
  for (size_t i = 0; i < count; ++i) {
    weft_op_info info;
    OK(weft_op_at(i, &info));
    CHECK(strlen(info.name) > 0 && strlen(info.family) > 0);
    for (size_t k = 0; k < info.inputs_count; ++k) {
      weft_input_info input;
      OK(weft_op_input(info.name, k, &input));
      CHECK(strlen(input.name) > 0);
    }
    for (size_t k = 0; k < info.attributes_count; ++k) {
      weft_attribute_info attribute;
      const char* json = NULL;
      OK(weft_op_attribute(info.name, k, &attribute));
      OK(weft_op_attribute_default(info.name, k, &json));
      CHECK(attribute.required ? strcmp(json, "null") == 0 : strlen(json) > 0);
    }
  }
  weft_op_info info;
  OK(weft_op_find("absolute", &info));
  CHECK(strcmp(info.name, "abs") == 0);
  weft_input_info input;
  FAILS(weft_op_at(count, &info), WEFT_USAGE_ERROR, "none");
  FAILS(weft_op_input("abs", 1, &input), WEFT_USAGE_ERROR, "inputs");
  FAILS(weft_op_find("no such op", &info), WEFT_USAGE_ERROR, "no such op");

  const char* const inputs[1] = {"x"};
  OK(weft_register_op("c_cube", inputs, 1, "x * x * x", NULL));
  CHECK(weft_op_count() == count + 1);
  const float two = 2;
  const weft_tensor x = floats(&two, 1, 1), y = call1("c_cube", x);
  double item = 0;
  OK(weft_tensor_item(y, &item));
  CHECK(item == 8);
  OK(weft_tensor_release(y));
  OK(weft_tensor_release(x));
  FAILS(weft_register_op("c_wrong", inputs, 1, "x +", NULL), WEFT_USAGE_ERROR, "c_wrong");
  FAILS(weft_register_op("add", inputs, 1, "x", NULL), WEFT_USAGE_ERROR, "add");
}

static void test_gradients(void) {
  const float values[3] = {1, 2, 3};
  const weft_tensor x = floats(values, 1, 3);
  const weft_tensor y = call1("sum", call2("mul", x, x));
  weft_tensor slope = {0};
  OK(weft_gradient(y, &x, 1, kNone, &slope));
  float read[3];
  OK(weft_tensor_read(slope, read, sizeof read));
  CHECK(read[0] == 2 && read[2] == 6);

  weft_variable v = {0};
  OK(weft_variable_create(x, "v", true, &v));
  weft_tensor value = {0}, gradient = {1};
  OK(weft_variable_gradient(v, &gradient));
  CHECK(gradient.id == 0);
  OK(weft_variable_value(v, &value));
  OK(weft_backward(call1("sum", call1("exp", value)), kNone));
  OK(weft_variable_gradient(v, &gradient));
  OK(weft_tensor_read(gradient, read, sizeof read));
  CHECK(fabsf(read[1] - expf(2)) < 1e-5f);
  OK(weft_variable_clear_gradient(v));
  weft_tensor none = {1};
  OK(weft_variable_gradient(v, &none));
  CHECK(none.id == 0);
  OK(weft_manual_seed(3));
  OK(weft_tensor_release(gradient));
  OK(weft_tensor_release(value));
  OK(weft_variable_release(v));
  OK(weft_tensor_release(slope));
  OK(weft_tensor_release(y));
  FAILS(weft_gradient(x, &x, 1, kNone, &slope), WEFT_USAGE_ERROR, "seed");
  OK(weft_tensor_release(x));
}

struct Step {
  weft_variable w;
  int traces;
};
/* w = w - 0.5 x; the result is the sum of the new w. */
static weft_status step(void* context, const weft_tensor* arguments, size_t count, weft_tensor* results, size_t results_max,
                        size_t* results_count) {
  struct Step* s = context;
  ++s->traces;
  if (count != 1 || results_max < 1) return WEFT_USAGE_ERROR;
  weft_tensor w = {0}, half = {0}, change = {0}, next = {0};
  size_t n = 0;
  weft_status status = weft_variable_value(s->w, &w);
  if (status == WEFT_OK) status = weft_tensor_full(-0.5, NULL, 0, "f32", NULL, &half);
  const weft_tensor product[2] = {arguments[0], half};
  if (status == WEFT_OK) status = weft_call("mul", product, 2, NULL, 0, &change, 1, &n);
  const weft_tensor terms[2] = {w, change};
  if (status == WEFT_OK) status = weft_call("add", terms, 2, NULL, 0, &next, 1, &n);
  if (status == WEFT_OK) status = weft_variable_assign(s->w, next);
  if (status == WEFT_OK) status = weft_call("sum", &next, 1, NULL, 0, results, 1, results_count);
  weft_tensor_release(w);
  weft_tensor_release(half);
  weft_tensor_release(change);
  weft_tensor_release(next);
  return status;
}
static weft_status refuses(void* context, const weft_tensor* arguments, size_t count, weft_tensor* results, size_t results_max,
                           size_t* results_count) {
  (void)context, (void)arguments, (void)count, (void)results, (void)results_max, (void)results_count;
  weft_set_error_message("not today");
  return WEFT_CALLBACK_ERROR;
}
static weft_status invents(void* context, const weft_tensor* arguments, size_t count, weft_tensor* results, size_t results_max,
                           size_t* results_count) {
  (void)refuses(context, arguments, count, results, results_max, results_count);
  return (weft_status)42; /* no status */
}
static weft_status lies(void* context, const weft_tensor* arguments, size_t count, weft_tensor* results, size_t results_max,
                        size_t* results_count) {
  (void)context, (void)arguments, (void)count;
  results[0].id = 12345;
  *results_count = results_max;
  return WEFT_OK;
}

static void test_compiled(void) {
  const float start[4] = {1, 1, 1, 1}, values[4] = {1, 2, 3, 4};
  const weft_tensor initial = floats(start, 1, 4), x = floats(values, 1, 4);
  struct Step s = {{0}, 0};
  OK(weft_variable_create(initial, "w", false, &s.w));
  weft_function f = {0};
  OK(weft_compile(step, &s, &f));
  double sums[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    weft_tensor y = {0};
    size_t count = 0;
    OK(weft_function_call(f, &x, 1, &y, 1, &count));
    OK(weft_tensor_item(y, &sums[i]));
    OK(weft_tensor_release(y));
  }
  CHECK(s.traces == 1);
  CHECK(sums[0] == -1 && sums[1] == -6 && sums[2] == -11);
  const char* text = NULL;
  OK(weft_function_explain(f, false, &text));
  CHECK(strlen(text) > 0);
  OK(weft_function_release(f));
  OK(weft_variable_release(s.w));

  weft_tensor y = {0};
  size_t count = 0;
  OK(weft_compile(refuses, NULL, &f));
  FAILS(weft_function_call(f, &x, 1, &y, 1, &count), WEFT_CALLBACK_ERROR, "not today");
  OK(weft_function_release(f));
  OK(weft_compile(invents, NULL, &f));
  FAILS(weft_function_call(f, &x, 1, &y, 1, &count), WEFT_CALLBACK_ERROR, "unknown: not today");
  OK(weft_function_release(f));
  OK(weft_compile(lies, NULL, &f));
  FAILS(weft_function_call(f, &x, 1, &y, 1, &count), WEFT_BAD_HANDLE, "living");
  OK(weft_function_release(f));
  FAILS(weft_compile(NULL, NULL, &f), WEFT_USAGE_ERROR, "null");
  OK(weft_tensor_release(initial));
  OK(weft_tensor_release(x));
}

static void test_files(const char* folder) {
  const float values[4] = {1, 2, 3, 4};
  const weft_tensor x = floats(values, 2, 2), y = call1("neg", x);
  const weft_tensor both[2] = {x, y};
  const char* const names[2] = {"x", "y"};
  const char* const same[2] = {"x", "x"};
  const char* const ends[4] = {"npz", "safetensors", "gguf", "npy"};
  for (int i = 0; i < 4; ++i) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tensors.%s", folder, ends[i]);
    const size_t count = i == 3 ? 1 : 2;
    OK(weft_save(path, names, both, count));
    weft_archive archive = {0};
    OK(weft_load(path, "cpu", &archive));
    size_t found = 0;
    OK(weft_archive_count(archive, &found));
    CHECK(found == count);
    const char* name = NULL;
    weft_tensor tensor = {0};
    OK(weft_archive_at(archive, count - 1, &name, &tensor));
    CHECK(strcmp(name, i == 3 ? "array" : "y") == 0);
    float read[4];
    OK(weft_tensor_read(tensor, read, sizeof read));
    CHECK(read[3] == (i == 3 ? 4 : -4));
    OK(weft_tensor_release(tensor));
    OK(weft_archive_find(archive, i == 3 ? "array" : "x", &tensor));
    OK(weft_tensor_release(tensor));
    FAILS(weft_archive_find(archive, "z", &tensor), WEFT_USAGE_ERROR, "z");
    FAILS(weft_archive_at(archive, 7, &name, &tensor), WEFT_USAGE_ERROR, "7");
    OK(weft_archive_release(archive));
    remove(path);
    FAILS(weft_load(path, "cpu", &archive), WEFT_FILE_ERROR, "tensors");
    FAILS(weft_save(path, same, both, 2), WEFT_USAGE_ERROR, i == 3 ? "name" : "x");
  }
  weft_archive archive = {0};
  FAILS(weft_load("tensors.pickle", "cpu", &archive), WEFT_USAGE_ERROR, ".npz");
  FAILS(weft_save("tensors.txt", names, both, 2), WEFT_USAGE_ERROR, ".npz");
  OK(weft_tensor_release(x));
  OK(weft_tensor_release(y));
}

static void test_misuse(void) {
  const float values[1] = {1};
  weft_tensor x = floats(values, 1, 1), y = {0};
  weft_variable v = {0};
  OK(weft_variable_create(x, NULL, true, &v));
  FAILS(weft_tensor_release(kNone), WEFT_BAD_HANDLE, "zero");
  FAILS(weft_tensor_release((weft_tensor){v.id}), WEFT_BAD_HANDLE, "living tensor");
  FAILS(weft_variable_release((weft_variable){x.id}), WEFT_BAD_HANDLE, "living variable");
  FAILS(weft_function_release((weft_function){x.id}), WEFT_BAD_HANDLE, "living function");
  FAILS(weft_archive_release((weft_archive){v.id}), WEFT_BAD_HANDLE, "living archive");
  FAILS(weft_tensor_share((weft_tensor){UINT64_MAX}, &y), WEFT_BAD_HANDLE, "living tensor");
  OK(weft_tensor_release(x));
  FAILS(weft_tensor_release(x), WEFT_BAD_HANDLE, "released"); /* twice */
  const weft_tensor later = floats(values, 1, 1); /* the same place, another generation */
  FAILS(weft_tensor_release(x), WEFT_BAD_HANDLE, "released");
  size_t rank = 0, count = 0;
  FAILS(weft_tensor_shape(x, NULL, 0, &rank), WEFT_BAD_HANDLE, "released");
  FAILS(weft_call("abs", &x, 1, NULL, 0, &y, 1, &count), WEFT_BAD_HANDLE, "released");
  FAILS(weft_backward(x, kNone), WEFT_BAD_HANDLE, "released");
  FAILS(weft_evaluate(&x, 1), WEFT_BAD_HANDLE, "released");
  x = later;

  FAILS(weft_tensor_shape(x, NULL, 2, &rank), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_shape(x, NULL, 0, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_bytes(x, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_dtype(x, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_view(x, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_read(x, NULL, 4), WEFT_USAGE_ERROR, "null");
  float read[2];
  FAILS(weft_tensor_read(x, read, 8), WEFT_USAGE_ERROR, "8 bytes");
  FAILS(weft_tensor_item(x, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call(NULL, &x, 1, NULL, 0, &y, 1, &count), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call("abs", NULL, 1, NULL, 0, &y, 1, &count), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call("abs", &x, 1, NULL, 3, &y, 1, &count), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call("abs", &x, 1, NULL, 0, NULL, 1, &count), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call("abs", &x, 1, NULL, 0, &y, 1, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_call("abs", &x, SIZE_MAX, NULL, 0, &y, 1, &count), WEFT_USAGE_ERROR, "list");
  FAILS(weft_call("abs", NULL, 0, NULL, 0, &y, 1, &count), WEFT_USAGE_ERROR, "abs");
  FAILS(weft_gradient(x, &x, 1, kNone, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_compile(step, NULL, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_load(NULL, NULL, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_variable_create(x, "w", true, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_variable_value(v, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_op_at(0, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_register_op(NULL, NULL, 0, NULL, NULL), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_from_dlpack(NULL, false, &y), WEFT_USAGE_ERROR, "null");

  const int64_t negative[1] = {-1}, huge[3] = {INT64_MAX, INT64_MAX, 2}, large[2] = {1ll << 40, 1ll << 20}, one[1] = {1};
  FAILS(weft_tensor_full(0, negative, 1, "f32", "cpu", &y), WEFT_SHAPE_ERROR, "negative");
  FAILS(weft_tensor_from_memory(values, 4, huge, 3, "f32", "cpu", &y), WEFT_SHAPE_ERROR, "too many");
  FAILS(weft_tensor_from_memory(values, (size_t)1 << 62, large, 2, "f32", "cpu", &y), WEFT_SHAPE_ERROR, "too many");
  FAILS(weft_tensor_from_memory(values, 4, one, 65, "f32", "cpu", &y), WEFT_SHAPE_ERROR, "rank 65");
  FAILS(weft_tensor_from_memory(NULL, 4, one, 1, "f32", "cpu", &y), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_from_memory(values, 4, NULL, 1, "f32", "cpu", &y), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_from_memory(values, 4, one, 1, NULL, "cpu", &y), WEFT_USAGE_ERROR, "null");
  FAILS(weft_tensor_from_memory(values, 4, one, 1, "float", "cpu", &y), WEFT_DTYPE_ERROR, "float");
  FAILS(weft_tensor_from_memory(values, 4, one, 1, "f32", "gpu", &y), WEFT_USAGE_ERROR, "gpu");
  FAILS(weft_set_default_device(NULL), WEFT_USAGE_ERROR, "null");
  const weft_tensor wide[2] = {x, v.id ? x : x};
  const float six[6] = {0};
  weft_tensor m = floats(six, 2, 3);
  const weft_tensor wrong[2] = {m, m};
  FAILS(weft_call("matmul", wrong, 2, NULL, 0, &y, 1, &count), WEFT_SHAPE_ERROR, "matmul");
  FAILS(weft_call("abs", wide, 2, NULL, 0, &y, 1, &count), WEFT_USAGE_ERROR, "abs");
  FAILS(weft_variable_assign(v, m), WEFT_SHAPE_ERROR, "assign");
  OK(weft_tensor_release(m));
  OK(weft_variable_release(v));
  OK(weft_tensor_release(x));
}

static void* work(void* seed) {
  for (int i = 0; i < 200; ++i) {
    const float values[2] = {(float)i, *(float*)seed};
    const weft_tensor x = floats(values, 1, 2), y = call2("add", x, x);
    float read[2];
    OK(weft_tensor_read(y, read, sizeof read));
    CHECK(read[0] == 2 * (float)i && read[1] == 2 * values[1]);
    OK(weft_tensor_release(y));
    OK(weft_tensor_release(x));
    weft_tensor result = {0};
    FAILS(weft_tensor_share(x, &result), WEFT_BAD_HANDLE, "released"); /* the thread's own message */
  }
  return NULL;
}
static void test_threads(void) {
  pthread_t threads[4];
  float seeds[4] = {1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, &seeds[i]);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

int main(int count, char** arguments) {
  test_version();
  test_tensors();
  test_borrowed();
  test_dlpack();
  test_attributes();
  test_table();
  const size_t before = weft_live_handles();
  CHECK(before == 0);
  test_compiled();
  test_files(count > 1 ? arguments[1] : ".");
  test_misuse();
  test_threads();
  CHECK(weft_live_handles() == 0);
  test_gradients(); /* leaves the handles of its nested calls */
  if (failures == 0) printf("the C interface works\n");
  return failures != 0;
}

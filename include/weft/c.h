/* The C interface of Weft, for programs and languages that do not speak C++. Link libweft_c.so (pkg-config weft_c).
 *
 * Objects are named by handles. A handle is a number: copying it copies nothing, and whoever got it from a function releases it
 * once. A handle that is zero, was released, or names another kind of object is WEFT_BAD_HANDLE, never a crash.
 * Functions return a status; nothing is thrown through them. After a failure the results are unchanged, and
 * weft_error_message() tells this thread what was wrong. Texts are UTF-8 and end with a zero byte.
 * A null pointer is WEFT_USAGE_ERROR, except where a comment says that it means something.
 * Thread safety: any thread may call any function; objects follow the rules of their C++ counterparts (weft/tensor.hpp).
 */
#ifndef WEFT_C_H
#define WEFT_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In C++ an enumeration may only hold its own values unless its type is given. What callers pass may be any number, which is refused. */
#ifdef __cplusplus
#define WEFT_ENUM_TYPE : unsigned int
extern "C" {
#else
#define WEFT_ENUM_TYPE
#endif

/* ---- Version and errors --------------------------------------------------------------------------------------------- */

/* Grows when a function or a struct of this file changes its meaning. New functions do not change it. */
#define WEFT_ABI_VERSION 2
/* The version of the library that runs. A program compares it with WEFT_ABI_VERSION before anything else. */
uint32_t weft_abi_version(void);
/* "0.1.0". */
const char* weft_version(void);

typedef enum weft_status WEFT_ENUM_TYPE {
  WEFT_OK = 0,
  WEFT_SHAPE_ERROR = 1,    /* shapes that do not fit an op */
  WEFT_DTYPE_ERROR = 2,    /* a dtype that an op or a device does not take */
  WEFT_DEVICE_ERROR = 3,   /* no device, a lost device, no memory on it */
  WEFT_FILE_ERROR = 4,     /* a file that is missing, unreadable, unwritable or malformed */
  WEFT_USAGE_ERROR = 5,    /* a wrong argument or order of calls */
  WEFT_INTERNAL_ERROR = 6, /* a bug in Weft */
  WEFT_OUT_OF_MEMORY = 7,
  WEFT_BAD_HANDLE = 8, /* a handle that is zero, was released, or names something else */
  WEFT_CALLBACK_ERROR = 9 /* a function of the caller failed */
} weft_status;

/* What the last failure on this thread was: op, fact, operands, cure. Valid until the thread's next failure. "" before any. */
const char* weft_error_message(void);
/* Inside a callback: the message of the failure that it is going to return. */
void weft_set_error_message(const char* message);
/* "WEFT_SHAPE_ERROR". */
const char* weft_status_name(weft_status status);

/* ---- Handles -------------------------------------------------------------------------------------------------------- */

typedef struct weft_tensor { uint64_t id; } weft_tensor;     /* a value; it never changes */
typedef struct weft_variable { uint64_t id; } weft_variable; /* state that changes */
typedef struct weft_function { uint64_t id; } weft_function; /* a compiled function */
typedef struct weft_archive { uint64_t id; } weft_archive;   /* tensors by name, read from a file */

/* A handle of zero is an absent optional input of an op, and nothing else. Releasing it is WEFT_BAD_HANDLE. */
weft_status weft_tensor_release(weft_tensor tensor);
weft_status weft_variable_release(weft_variable variable);
weft_status weft_function_release(weft_function function);
weft_status weft_archive_release(weft_archive archive);
/* Another handle to the same value. */
weft_status weft_tensor_share(weft_tensor tensor, weft_tensor* result);
/* Handles that are not released yet, of all kinds: for tests of leaks. */
size_t weft_live_handles(void);

/* ---- Tensors -------------------------------------------------------------------------------------------------------- */

/* Dtypes are names: "f32", "f64", "f16", "bf16", "i8" to "i64", "u8" to "u64", "bool", and the storage types that
 * docs/numbers.md lists. Devices too: "cpu", "webgpu", "webgpu:1", "auto". */

/* Copies elements, row-major, in host form (a bool is one byte). `device` null: the default device.
 * `bytes` must be the size of exactly these elements. */
weft_status weft_tensor_from_memory(const void* data, size_t bytes, const int64_t* shape, size_t rank, const char* dtype,
                                    const char* device, weft_tensor* result);
/* Shares the elements, on the CPU. They must stay as they are until `release(context)` is called, once, on any thread, when the
 * last value that reads them is gone; on a failure it is not called. Elements that cannot be shared (bool, types below 8 bits,
 * memory that is not aligned) are copied, and `release` is called at once. `release` may be null. */
weft_status weft_tensor_borrow(const void* data, size_t bytes, const int64_t* shape, size_t rank, const char* dtype,
                               void (*release)(void* context), void* context, weft_tensor* result);
/* `value` everywhere. `device` null: the default device. */
weft_status weft_tensor_full(double value, const int64_t* shape, size_t rank, const char* dtype, const char* device,
                             weft_tensor* result);

/* Writes at most `rank_max` extents, and the rank (`shape` may be null if `rank_max` is 0). */
weft_status weft_tensor_shape(weft_tensor tensor, int64_t* shape, size_t rank_max, size_t* rank);
/* The name is valid forever. */
weft_status weft_tensor_dtype(weft_tensor tensor, const char** dtype);
/* Valid until the thread's next call of a function that gives a text. */
weft_status weft_tensor_device(weft_tensor tensor, const char** device);
/* Bytes of the elements in host form. */
weft_status weft_tensor_bytes(weft_tensor tensor, size_t* bytes);
weft_status weft_tensor_to_device(weft_tensor tensor, const char* device, weft_tensor* result);
/* Rows and columns as text. Valid until the thread's next call of a function that gives a text. */
weft_status weft_tensor_text(weft_tensor tensor, const char** text);

/* Computes the values in one run. They release their inputs, unless a variable that requires a gradient is among what they
 * were made from. */
weft_status weft_evaluate(const weft_tensor* tensors, size_t count);
/* Evaluates, and copies all elements out. `bytes` as weft_tensor_bytes. */
weft_status weft_tensor_read(weft_tensor tensor, void* data, size_t bytes);
/* Evaluates, and gives the elements without copying them where the tensor is on the CPU. The memory is only to be read, and
 * valid until the tensor's handle is released. */
weft_status weft_tensor_view(weft_tensor tensor, const void** data);
/* The one element of a tensor with one element, as a double. */
weft_status weft_tensor_item(weft_tensor tensor, double* value);

/* DLPack. Import takes the array over: it calls the array's deleter when the values are gone, but not on a failure. Export
 * evaluates and lends the tensor's memory, which is only to be read; the receiver calls the deleter. The arrays are
 * DLManagedTensor, or with `versioned` DLManagedTensorVersioned. */
weft_status weft_tensor_from_dlpack(void* managed, bool versioned, weft_tensor* result);
weft_status weft_tensor_to_dlpack(weft_tensor tensor, bool versioned, void** managed);

/* ---- Ops ------------------------------------------------------------------------------------------------------------ */

typedef enum weft_attribute_type WEFT_ENUM_TYPE {
  WEFT_INTEGER = 0,
  WEFT_NUMBER = 1,
  WEFT_BOOLEAN = 2,
  WEFT_INTEGERS = 3, /* `integers`, `count` of them */
  WEFT_PAIRS = 4,    /* `integers`, `count` pairs one after another */
  WEFT_DTYPE = 5,    /* `word`: its name */
  WEFT_CHOICE = 6,   /* `word`: one of a few */
  WEFT_NUMBERS = 7   /* `numbers`, `count` of them */
} weft_attribute_type;

/* One attribute of a call: its name, its type, and the field that the type selects. */
typedef struct weft_attribute {
  const char* name;
  weft_attribute_type type;
  int64_t integer;
  double number;
  bool boolean;
  const int64_t* integers;
  size_t count;
  const char* word;
  const double* numbers;
} weft_attribute;

/* Applies an op of the table. Inputs are in the op's order; a handle of zero leaves out an optional one. Attributes that are not
 * given take their defaults. Writes at most `results_max` results, and how many there are; it is a failure if there are more.
 * Nothing is computed before it is asked for. */
weft_status weft_call(const char* op, const weft_tensor* inputs, size_t inputs_count, const weft_attribute* attributes,
                      size_t attributes_count, weft_tensor* results, size_t results_max, size_t* results_count);

/* What an op is. Texts are valid forever; `formula` may be "". */
typedef struct weft_op_info {
  const char *name, *family, *doc, *formula;
  size_t inputs_count, attributes_count;
  bool several_results, differentiable;
} weft_op_info;
typedef struct weft_input_info {
  const char* name;
  bool optional, repeated; /* repeated: takes every input from here on, at least one */
} weft_input_info;
typedef struct weft_attribute_info {
  const char *name, *doc;
  weft_attribute_type type;
  bool required;
} weft_attribute_info;
/* The ops of the table; registered ones come at the end. */
size_t weft_op_count(void);
weft_status weft_op_at(size_t index, weft_op_info* info);
/* By name or alias. */
weft_status weft_op_find(const char* name, weft_op_info* info);
weft_status weft_op_input(const char* op, size_t index, weft_input_info* info);
weft_status weft_op_attribute(const char* op, size_t index, weft_attribute_info* info);
/* The default as JSON, "null" if it is required. Valid until the thread's next call of a function that gives a text. */
weft_status weft_op_attribute_default(const char* op, size_t index, const char** json);

/* Adds an elementwise op of your own: docs/expressions.md describes the text. `gradients` null: derived from it. */
weft_status weft_register_op(const char* name, const char* const* inputs, size_t inputs_count, const char* forward,
                             const char* const* gradients);

/* Seeds the generator of random numbers. */
weft_status weft_manual_seed(uint32_t seed);
weft_status weft_set_default_device(const char* device);

/* ---- Variables and gradients ---------------------------------------------------------------------------------------- */

weft_status weft_variable_create(weft_tensor initial, const char* name, bool requires_grad, weft_variable* result);
weft_status weft_variable_value(weft_variable variable, weft_tensor* result);
/* Sets the next value, which is computed at the next evaluation. */
weft_status weft_variable_assign(weft_variable variable, weft_tensor next);
/* The gradient that weft_backward left; a handle of zero if there is none. */
weft_status weft_variable_gradient(weft_variable variable, weft_tensor* result);
weft_status weft_variable_clear_gradient(weft_variable variable);

/* d sum(seed output) / d input for each of the inputs. `seed` zero: 1, for outputs with one element. */
weft_status weft_gradient(weft_tensor output, const weft_tensor* inputs, size_t count, weft_tensor seed, weft_tensor* results);
/* Adds the gradient to each Variable that requires one and that the output was made from. `seed` as above. */
weft_status weft_backward(weft_tensor output, weft_tensor seed);

/* ---- Compiled functions --------------------------------------------------------------------------------------------- */

/* A function of tensors, which is called to be traced. It owns neither the arguments nor, once it has returned, the results:
 * it leaves the arguments alone, and gives handles of its own as results (`results_max` of them at most). A status other than
 * WEFT_OK ends the trace. */
typedef weft_status (*weft_callback)(void* context, const weft_tensor* arguments, size_t count, weft_tensor* results,
                                     size_t results_max, size_t* results_count);
/* Traces `callback` at the first call with arguments of these shapes and dtypes, and replays its plan from then on. The updates
 * of Variables that it makes are part of the plan. `context` must live as long as the function. */
weft_status weft_compile(weft_callback callback, void* context, weft_function* result);
weft_status weft_function_call(weft_function function, const weft_tensor* arguments, size_t count, weft_tensor* results,
                               size_t results_max, size_t* results_count);
/* Kernels, shapes, bytes, FLOPs of the last plan. Valid until the thread's next call of a function that gives a text. */
weft_status weft_function_explain(weft_function function, bool source, const char** text);

/* ---- Files ---------------------------------------------------------------------------------------------------------- */

/* Reads .npy (one tensor, with the name "array"), .npz, .safetensors or .gguf, by the end of the name. */
weft_status weft_load(const char* path, const char* device, weft_archive* result);
/* Writes such a file atomically: afterwards it is complete or unchanged. */
weft_status weft_save(const char* path, const char* const* names, const weft_tensor* tensors, size_t count);
weft_status weft_archive_count(weft_archive archive, size_t* count);
/* In the order of their names. The name is valid until the archive is released. */
weft_status weft_archive_at(weft_archive archive, size_t index, const char** name, weft_tensor* tensor);
weft_status weft_archive_find(weft_archive archive, const char* name, weft_tensor* tensor);

#ifdef __cplusplus
}
#endif

#endif

// The module weft._weft: exceptions, Ctrl-C, and the parts that the other files bind.
#include <chrono>
#include <thread>

#include "base/interrupt.hpp"
#include "handle.hpp"
#include "interrupt.hpp"
#include "operations.hpp"
#include "weft/anomaly.hpp"
#include "weft/error.hpp"
#include "weft/memory_limit.hpp"
#include "weft/operations.hpp"

namespace weft::python {
namespace {

struct Errors {
  PyObject *base, *shape, *dtype, *device, *memory, *file, *usage, *internal, *anomaly;
} errors;

// Python's traceback tells who called; the line of the binding's own source says nothing.
std::string without_caller(const std::string& message) {
  const auto at = message.rfind("\n  called at ");
  if (at == std::string::npos) return message;
  const auto end = message.find('\n', at + 1);
  return message.substr(0, at) + (end == std::string::npos ? "" : message.substr(end));
}

// The second base may be null.
PyObject* make_error(nb::module_& m, const char* name, PyObject* first, PyObject* second, const char* doc) {
  const nb::object bases = nb::steal(second ? PyTuple_Pack(2, first, second) : PyTuple_Pack(1, first));
  PyObject* made = PyErr_NewExceptionWithDoc((std::string("weft.") + name).c_str(), doc, bases.ptr(), nullptr);
  if (!made) raise();
  m.attr(name) = nb::borrow(made);
  return made;
}

// Ctrl-C while the engine works on the main thread: looks for signals every 50 ms, and ends the work with KeyboardInterrupt.
std::thread::id main_thread;
void look_for_signals() {
  if (std::this_thread::get_id() != main_thread) return;
  using Clock = std::chrono::steady_clock;
  static Clock::time_point next;  // of the main thread only
  const auto now = Clock::now();
  if (now < next) return;
  next = now + kSignalPause;
  check_signals();
}

thread_local bool was_interrupted = false;

}  // namespace

void check_signals() {
  if (std::this_thread::get_id() != main_thread || !Py_IsInitialized()) return;
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  note_interrupt();
  throw nb::python_error();
}
void note_interrupt() { was_interrupted = true; }
bool take_interrupt() { return std::exchange(was_interrupted, false); }

void set_python_error(const std::exception_ptr& exception) {
  const auto set = [](PyObject* type, const std::exception& e) {
    const std::string text = without_caller(e.what());
    PyErr_SetString(type, text.c_str());
  };
  try {
    std::rethrow_exception(exception);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const ShapeError& e) {
    set(errors.shape, e);
  } catch (const DTypeError& e) {
    set(errors.dtype, e);
  } catch (const DeviceMemoryError& e) {
    set(errors.memory, e);
  } catch (const DeviceError& e) {
    set(errors.device, e);
  } catch (const FileError& e) {
    set(errors.file, e);
  } catch (const UsageError& e) {
    set(errors.usage, e);
  } catch (const InternalError& e) {
    set(errors.internal, e);
  } catch (const AnomalyError& e) {
    set(errors.anomaly, e);
  } catch (const operations::OperationError& e) {
    set_operation_error(e);
  } catch (const Error& e) {
    set(errors.base, e);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::length_error&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set(errors.internal, e);
  } catch (...) {
    PyErr_SetString(errors.internal, "an exception of an unknown type");
  }
}

}  // namespace weft::python

NB_MODULE(_weft, m) {
  using namespace weft;
  using namespace weft::python;
  nb::set_leak_warnings(false);  // a program may end while its globals hold tensors
  const auto make = [&m](const char* name, PyObject* first, PyObject* second, const char* doc) {
    return make_error(m, name, first, second, doc);
  };
  errors.base = make("Error", PyExc_Exception, nullptr, "Base of the errors of Weft.");
  PyObject* const base = errors.base;
  errors.shape = make("ShapeError", base, PyExc_ValueError, "Shapes that do not fit an op.");
  errors.dtype = make("DTypeError", base, PyExc_TypeError, "A dtype that an op or a device does not take.");
  errors.device = make("DeviceError", base, PyExc_RuntimeError, "No device, a lost device, no memory on it.");
  errors.memory =
      make("DeviceMemoryError", errors.device, nullptr, "A value that does not fit in the session's limit.");
  errors.file = make("FileError", base, PyExc_OSError, "A file that is missing, unreadable, unwritable or malformed.");
  errors.usage = make("UsageError", base, PyExc_ValueError, "A wrong argument, option or order of calls.");
  errors.internal = make("InternalError", base, PyExc_RuntimeError, "A bug in Weft. Please report it.");
  errors.anomaly = make("AnomalyError", base, nullptr, "A computed value has a NaN (detect_anomaly).");
  nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
    try {
      std::rethrow_exception(exception);
    } catch (const Error&) {
      set_python_error(exception);
    }
  });
  bind_tensor(m);
  bind_ops(m);
  bind_functions(m);
  bind_transforms(m);
  bind_kernels(m);
  bind_nn(m);
  bind_optimizers(m);
  bind_files(m);
  bind_onnx(m);
  bind_models(m);
  bind_hub(m);
  bind_training(m);
  bind_tuning(m);
  bind_grid(m);
  bind_metatensor(m);
  bind_media(m);
  bind_encoder(m);
  bind_vision(m);
  bind_speech(m);
  bind_memory(m);
  bind_trees(m);
  bind_operations(m);
  bind_workflows(m);
  main_thread = std::this_thread::get_id();
  set_interrupt_check(look_for_signals);
  m.attr("__version__") = WEFT_VERSION;
}

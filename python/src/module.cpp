// The module weft._weft: exceptions, Ctrl-C, and the parts that the other files bind.
#include <chrono>
#include <thread>

#include "base/interrupt.hpp"
#include "handle.hpp"
#include "weft/error.hpp"
#include "weft/operations.hpp"

namespace weft::python {
namespace {

struct Errors {
  PyObject *base, *shape, *dtype, *device, *file, *usage, *internal;
} errors;

// Python's traceback tells who called; the line of the binding's own source says nothing.
std::string without_caller(const std::string& message) {
  const auto at = message.rfind("\n  called at ");
  if (at == std::string::npos) return message;
  const auto end = message.find('\n', at + 1);
  return message.substr(0, at) + (end == std::string::npos ? "" : message.substr(end));
}

PyObject* make_error(nb::module_& m, const char* name, PyObject* second, const char* doc) {
  const nb::object bases =
      errors.base ? nb::steal(PyTuple_Pack(2, errors.base, second)) : nb::steal(PyTuple_Pack(1, second));
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
  next = now + std::chrono::milliseconds(50);
  if (!Py_IsInitialized()) return;
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

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
  } catch (const DeviceError& e) {
    set(errors.device, e);
  } catch (const FileError& e) {
    set(errors.file, e);
  } catch (const UsageError& e) {
    set(errors.usage, e);
  } catch (const InternalError& e) {
    set(errors.internal, e);
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
  errors.base = make_error(m, "Error", PyExc_Exception, "Base of the errors of Weft.");
  errors.shape = make_error(m, "ShapeError", PyExc_ValueError, "Shapes that do not fit an op.");
  errors.dtype = make_error(m, "DTypeError", PyExc_TypeError, "A dtype that an op or a device does not take.");
  errors.device = make_error(m, "DeviceError", PyExc_RuntimeError, "No device, a lost device, no memory on it.");
  errors.file =
      make_error(m, "FileError", PyExc_OSError, "A file that is missing, unreadable, unwritable or malformed.");
  errors.usage = make_error(m, "UsageError", PyExc_ValueError, "A wrong argument, option or order of calls.");
  errors.internal = make_error(m, "InternalError", PyExc_RuntimeError, "A bug in Weft. Please report it.");
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
  bind_optimizers(m);
  bind_files(m);
  bind_models(m);
  main_thread = std::this_thread::get_id();
  set_interrupt_check(look_for_signals);
  m.attr("__version__") = WEFT_VERSION;
}

// Vector memories, and component trees with the models that are made of them.
#include "weft/memory.hpp"

#include <filesystem>
#include <variant>

#include "callable.hpp"
#include "catalogue/media_values.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/shared_ptr.h"
#include "values.hpp"
#include "weft/error.hpp"
#include "weft/nn/tree_model.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

std::vector<float> row_from(const nb::object& embedding) {
  const Tensor given = tensor_from(embedding.ptr(), DType::f32);
  return without_gil([&] { return given.to_vector<float>(); });
}

nb::tuple entry_object(const memory::Entry& entry) {
  return nb::make_tuple(entry.id, entry.name_space, entry.text, object_of(entry.metadata));
}
nb::list match_objects(const std::vector<memory::Match>& matches) {
  nb::list list;
  for (const memory::Match& match : matches) list.append(nb::make_tuple(entry_object(match.entry), match.similarity));
  return list;
}

/// A store of its own, or that of a file to which changes are appended.
struct PythonStore {
  std::variant<memory::Store, memory::StoreFile> held;

  const memory::Store& store() const {
    if (const auto* own = std::get_if<memory::Store>(&held)) return *own;
    return std::get<memory::StoreFile>(held).store();
  }
  memory::StoreFile& file() {
    if (auto* found = std::get_if<memory::StoreFile>(&held)) return *found;
    throw UsageError("memory: the store has no file of its own; weft.memory.open makes one that has");
  }
};

}  // namespace

void bind_memory(nb::module_& m) {
  using memory::Store;
  nb::class_<PythonStore>(m, "_Memory")
      .def("__init__", [](PythonStore* self, Extent width) { new (self) PythonStore{Store(width)}; })
      .def_static("load", [](const Path& path) { return PythonStore{without_gil([&] { return Store::load(path); })}; })
      .def_static(
          "open",
          [](const Path& path, std::optional<Extent> width) {
            return PythonStore{without_gil([&] { return memory::StoreFile::open(path, width); })};
          },
          nb::arg("path"), nb::arg("width").none())
      .def("commit", [](PythonStore& self) { without_gil([&] { self.file().commit(); }); })
      .def("compact", [](PythonStore& self) { without_gil([&] { self.file().compact(); }); })
      .def("close",
           [](PythonStore& self) {
             if (auto* file = std::get_if<memory::StoreFile>(&self.held)) self.held = std::move(*file).release();
           })
      .def("journal_bytes", [](PythonStore& self) { return self.file().journal_bytes(); })
      .def("add",
           [](PythonStore& self, const std::string& text, nb::object embedding, const std::string& id,
              const std::string& name_space, nb::object metadata) {
             const memory::Entry entry{id, name_space, text, value_of(metadata.ptr())};
             const std::vector<float> row = row_from(embedding);
             return std::visit([&](auto& held) { return held.add(entry, row); }, self.held);
           })
      .def("remove",
           [](PythonStore& self, const std::string& id) {
             return std::visit([&](auto& held) { return held.remove(id); }, self.held);
           })
      .def("find",
           [](const PythonStore& self, const std::string& id) -> nb::object {
             const memory::Entry* const found = self.store().find(id);
             return found ? nb::object(entry_object(*found)) : nb::none();
           })
      .def("width", [](const PythonStore& self) { return self.store().width(); })
      .def("size", [](const PythonStore& self) { return self.store().size(); })
      .def("namespaces", [](const PythonStore& self) { return self.store().namespaces(); })
      .def("entries",
           [](const PythonStore& self) {
             nb::list list;
             for (const memory::Entry& entry : self.store().entries()) list.append(entry_object(entry));
             return list;
           })
      .def("search",
           [](const PythonStore& self, nb::object query, const nb::dict& options) {
             const std::vector<float> row = row_from(query);
             const memory::SearchOptions o = operations::memory_search_options(value_of(options.ptr()));
             return match_objects(without_gil([&] { return self.store().search(row, o); }));
           })
      .def(
          "recall",
          [](const PythonStore& self, nb::object query, std::size_t budget, nb::object count, const nb::dict& options) {
            const std::vector<float> row = row_from(query);
            memory::RecallOptions o{.token_budget = budget,
                                    .search = operations::memory_search_options(value_of(options.ptr()),
                                                                                memory::RecallOptions().search.top_k)};
            if (!count.is_none())
              o.tokens = [call = Callable(count)](std::string_view text) {
                const nb::gil_scoped_acquire gil;
                return nb::cast<std::size_t>(call.get()(nb::str(text.data(), text.size())));
              };
            const memory::Recall made = without_gil([&] { return self.store().recall(row, o); });
            return nb::make_tuple(made.text, made.tokens, match_objects(made.matches));
          },
          nb::arg("query"), nb::arg("budget"), nb::arg("count").none(), nb::arg("options"))
      .def("save", [](const PythonStore& self, const Path& path) { without_gil([&] { self.store().save(path); }); });
}

void bind_trees(nb::module_& m) {
  m.def("_tree_normalised", [](nb::object element) { return object_of(tree::normalised(value_of(element.ptr()))); });
  m.def("_tree_difference", [](nb::object older, nb::object newer) {
    return object_of(tree::to_value(tree::difference(value_of(older.ptr()), value_of(newer.ptr()))));
  });
  m.def("_tree_patched", [](nb::object element, nb::object edits) {
    return object_of(tree::patched(value_of(element.ptr()), tree::edits_from(value_of(edits.ptr()))));
  });
  nb::class_<nn::TreeModel>(m, "_TreeModel")
      .def("__call__", [](const nn::TreeModel& self,
                          nb::object x) { return wrapped(self(value_from(x.ptr(), "tree: the input"))); })
      .def("render", [](nn::TreeModel& self,
                        nb::object element) { return object_of(tree::to_value(self.render(value_of(element.ptr())))); })
      .def("element", [](const nn::TreeModel& self) { return object_of(self.element()); })
      .def("describe", &nn::TreeModel::describe)
      .def("named_parameters",
           [](const nn::TreeModel& self) {
             nb::list list;
             for (const nn::NamedParameter& each : self.named_parameters())
               list.append(nb::make_tuple(each.name, wrap_variable(each.variable), each.decay));
             return list;
           })
      .def("named_buffers",
           [](const nn::TreeModel& self) {
             nb::list list;
             for (const nn::NamedVariable& each : self.named_buffers())
               list.append(nb::make_tuple(each.name, wrap_variable(each.variable)));
             return list;
           })
      .def("initialize", [](nn::TreeModel& self, std::uint64_t seed) { self.initialize(seed); })
      .def("train", [](nn::TreeModel& self, bool on) { self.train(on); });
  m.def("_make_tree_model",
        [](nb::object element) { return std::make_shared<nn::TreeModel>(value_of(element.ptr())); });
}

}  // namespace weft::python

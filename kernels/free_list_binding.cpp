#include <pybind11/pybind11.h>
namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::class_<FreeList>(module, "FreeList", py::module_local())
      .def(py::init<int>(), py::arg("num_blocks"))
      .def("pop", &FreeList::pop)
      .def("push", &FreeList::push, py::arg("block_id"))
      .def("size", &FreeList::size);
}

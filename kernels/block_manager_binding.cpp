#include <pybind11/pybind11.h>
namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  // BEGIN SOLUTION 1.4
  py::register_local_exception<PoolSizeError>(module, "PoolSizeError", PyExc_ValueError);
  py::register_local_exception<OutOfBlocksError>(module, "OutOfBlocksError",
                                                 PyExc_MemoryError);
  py::register_local_exception<BlockIndexError>(module, "BlockIndexError", PyExc_IndexError);
  py::register_local_exception<DoubleFreeError>(module, "DoubleFreeError", PyExc_RuntimeError);
  py::register_local_exception<BlockNotAllocatedError>(module, "BlockNotAllocatedError",
                                                       PyExc_RuntimeError);
  // END SOLUTION
  py::class_<BlockManager>(module, "BlockManager", py::module_local())
      .def(py::init<int>(), py::arg("num_blocks"))
      .def("allocate", &BlockManager::allocate)
      .def("free", &BlockManager::free, py::arg("block_id"))
      .def("increase_ref_count", &BlockManager::increase_ref_count, py::arg("block_id"))
      .def("get_ref_count", &BlockManager::get_ref_count, py::arg("block_id"))
      .def("get_num_free_blocks", &BlockManager::get_num_free_blocks);
}

"""Lesson 01."""

FREE_LISTS = [
    # Filled by the constructor's initialiser.
    r"""
    #include <algorithm>
    #include <numeric>
    #include <vector>
    class FreeList {
     public:
      explicit FreeList(int num_blocks) : ids(num_blocks) {
        std::iota(ids.rbegin(), ids.rend(), 0);
      }
      int pop() { int id = ids.back(); ids.resize(ids.size() - 1); return id; }
      void push(int block_id) { ids.insert(ids.end(), block_id); }
      int size() const { return static_cast<int>(ids.size()); }
     private:
      std::vector<int> ids;
    };
    """,
    # The standard library's own stack.
    r"""
    #include <stack>
    struct FreeList {
      std::stack<int> ids;
      FreeList(int num_blocks) { while (num_blocks-- > 0) ids.push(num_blocks); }
      int pop() { auto top = ids.top(); ids.pop(); return top; }
      void push(int block_id) { ids.emplace(block_id); }
      int size() const { return ids.size(); }
    };
    """,
    # A linked list inside an array, as allocators in kernels have it.
    r"""
    #include <memory>
    class FreeList {
     public:
      explicit FreeList(int num_blocks) : next_(new int[num_blocks]), top_(0), size_(num_blocks) {
        for (int i = 0; i < num_blocks; ++i) next_[i] = i + 1;
      }
      int pop() { int id = top_; top_ = next_[id]; --size_; return id; }
      void push(int block_id) { next_[block_id] = top_; top_ = block_id; ++size_; }
      int size() const { return size_; }
     private:
      std::unique_ptr<int[]> next_;
      int top_, size_;
    };
    """,
]

BLOCK_MANAGERS = [
    # Without FreeList, and with one function for each rule.
    r"""
    #include <vector>
    class BlockManager {
     public:
      explicit BlockManager(int num_blocks) {
        if (num_blocks <= 0) throw PoolSizeError(num_blocks);
        for (int id = 0; id < num_blocks; ++id) { users.push_back(0); stack.push_back(num_blocks - 1 - id); }
      }
      int allocate() {
        if (stack.empty()) throw OutOfBlocksError(static_cast<int>(users.size()));
        int id = stack.back();
        stack.pop_back();
        return users[id]++, id;
      }
      void increase_ref_count(int id) { if (!count(id)) throw BlockNotAllocatedError(id); users[id] += 1; }
      void free(int id) {
        if (!count(id)) throw DoubleFreeError(id);
        users[id] -= 1;
        if (!users[id]) stack.push_back(id);
      }
      int get_ref_count(int id) const { return count(id); }
      int get_num_free_blocks() const { return stack.size(); }
     private:
      int count(int id) const {
        if (static_cast<unsigned>(id) >= users.size()) throw BlockIndexError(id);
        return users[id];
      }
      std::vector<int> users, stack;
    };
    """,
    # at() and a translation of its error.
    r"""
    #include <vector>
    class BlockManager {
     public:
      explicit BlockManager(int num_blocks)
          : free_list_(check_pool_size(num_blocks)), ref_counts_(static_cast<size_t>(num_blocks)) {}
      int allocate() {
        if (get_num_free_blocks() < 1) throw OutOfBlocksError(ref_counts_.size());
        const int id = free_list_.pop();
        entry(id) = 1;
        return id;
      }
      void increase_ref_count(int block_id) {
        int& count = entry(block_id);
        if (count < 1) throw BlockNotAllocatedError(block_id);
        ++count;
      }
      void free(int block_id) {
        int& count = entry(block_id);
        switch (count) {
          case 0: throw DoubleFreeError(block_id);
          case 1: free_list_.push(block_id);
          default: count--;
        }
      }
      int get_ref_count(int block_id) const { return const_cast<BlockManager*>(this)->entry(block_id); }
      int get_num_free_blocks() const { return free_list_.size(); }
     private:
      int& entry(int block_id) {
        try { return ref_counts_.at(block_id); } catch (const std::out_of_range&) { throw BlockIndexError(block_id); }
      }
      FreeList free_list_;
      std::vector<int> ref_counts_;
    };
    """,
    # Counts in a map that holds the used blocks only.
    r"""
    #include <unordered_map>
    class BlockManager {
      FreeList list;
      std::unordered_map<int, int> users;
      int total;
      void known(int id) const { if (id < 0 or id > total - 1) throw BlockIndexError(id); }
     public:
      BlockManager(int num_blocks) : list(num_blocks > 0 ? num_blocks : 0), total(num_blocks) {
        if (num_blocks < 1) throw PoolSizeError(num_blocks);
      }
      int allocate() {
        if (list.size()) { int id = list.pop(); users[id] = 1; return id; }
        throw OutOfBlocksError(total);
      }
      void increase_ref_count(int id) {
        known(id);
        auto found = users.find(id);
        if (found == users.end()) throw BlockNotAllocatedError(id);
        found->second++;
      }
      void free(int id) {
        known(id);
        auto found = users.find(id);
        if (found == users.end()) throw DoubleFreeError(id);
        if (--found->second) return;
        users.erase(found);
        list.push(id);
      }
      int get_ref_count(int id) const { known(id); auto found = users.find(id); return found == users.end() ? 0 : found->second; }
      int get_num_free_blocks() const { return total - static_cast<int>(users.size()); }
    };
    """,
]


def _safe(member: str, lock: str, read_lock: str = "", unlock: str = "") -> str:
    read_lock = read_lock or lock
    return r"""
    #include <mutex>
    #include <shared_mutex>
    #include <vector>
    class BlockManager {
     public:
      explicit BlockManager(int num_blocks) : free_list_(check_pool_size(num_blocks)), ref_counts_(num_blocks, 0) {}
      int allocate() {
        LOCK
        if (free_list_.size() == 0) { UNLOCK throw OutOfBlocksError(ref_counts_.size()); }
        int id = free_list_.pop();
        ref_counts_[id] = 1;
        UNLOCK
        return id;
      }
      void increase_ref_count(int id) {
        if (!known(id)) throw BlockIndexError(id);
        LOCK
        if (ref_counts_[id] == 0) { UNLOCK throw BlockNotAllocatedError(id); }
        ++ref_counts_[id];
        UNLOCK
      }
      void free(int id) {
        if (!known(id)) throw BlockIndexError(id);
        LOCK
        if (ref_counts_[id] == 0) { UNLOCK throw DoubleFreeError(id); }
        if (--ref_counts_[id] == 0) free_list_.push(id);
        UNLOCK
      }
      int get_ref_count(int id) const {
        if (!known(id)) throw BlockIndexError(id);
        READ
        int count = ref_counts_[id];
        UNLOCK
        return count;
      }
      int get_num_free_blocks() const { READ int size = free_list_.size(); UNLOCK return size; }
     private:
      // The size never changes, so this needs no lock.
      bool known(int id) const { return id >= 0 && id < static_cast<int>(ref_counts_.size()); }
      FreeList free_list_;
      std::vector<int> ref_counts_;
      mutable MEMBER mutex_;
    };
    """.replace("UNLOCK", unlock).replace("LOCK", lock).replace("READ", read_lock).replace("MEMBER", member)


SAFE_BLOCK_MANAGERS = [
    _safe("std::mutex", "std::unique_lock<std::mutex> guard(mutex_);"),
    _safe("std::shared_mutex", "std::unique_lock hold(mutex_);", "std::shared_lock hold(mutex_);"),
    _safe("std::mutex", "mutex_.lock();", unlock="mutex_.unlock();"),
    _safe("std::mutex", "std::scoped_lock hold(mutex_);").replace("mutable std::mutex", "inline static std::mutex"),
    _safe("std::recursive_mutex", "std::scoped_lock hold{mutex_};"),
]

_METHODS = r"""
      py::class_<BlockManager>(m, "BlockManager", py::module_local())
          .def(py::init<int>(), py::arg("num_blocks"))
          .def("allocate", &BlockManager::allocate)
          .def("free", &BlockManager::free)
          .def("increase_ref_count", &BlockManager::increase_ref_count)
          .def("get_ref_count", &BlockManager::get_ref_count)
          .def("get_num_free_blocks", &BlockManager::get_num_free_blocks);
    }
"""
BINDINGS = [
    # A template that says each name once, and another order.
    r"""
    #include <pybind11/pybind11.h>
    namespace py = pybind11;
    #define ERROR(Type, base) py::register_local_exception<Type>(m, #Type, base)
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      ERROR(BlockNotAllocatedError, PyExc_RuntimeError);
      ERROR(DoubleFreeError, PyExc_RuntimeError);
      ERROR(BlockIndexError, PyExc_IndexError);
      ERROR(OutOfBlocksError, PyExc_MemoryError);
      ERROR(PoolSizeError, PyExc_ValueError);
    """ + _METHODS,
    # Registered for all modules, not for this one alone.
    r"""
    #include <pybind11/pybind11.h>
    namespace py = pybind11;
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      py::register_exception<PoolSizeError>(m, "PoolSizeError", PyExc_ValueError);
      py::register_exception<OutOfBlocksError>(m, "OutOfBlocksError", PyExc_MemoryError);
      py::register_exception<BlockIndexError>(m, "BlockIndexError", PyExc_IndexError);
      py::register_exception<DoubleFreeError>(m, "DoubleFreeError", PyExc_RuntimeError);
      py::register_exception<BlockNotAllocatedError>(m, "BlockNotAllocatedError", PyExc_RuntimeError);
    """ + _METHODS,
    # Bound through lambdas, with the errors registered last.
    r"""
    #include <pybind11/pybind11.h>
    namespace py = pybind11;
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      py::class_<BlockManager> manager(m, "BlockManager", py::module_local());
      manager.def(py::init([](int n) { return new BlockManager(n); }));
      manager.def("allocate", [](BlockManager& self) { return self.allocate(); });
      manager.def("free", [](BlockManager& self, int id) { self.free(id); });
      manager.def("increase_ref_count", [](BlockManager& self, int id) { self.increase_ref_count(id); });
      manager.def("get_ref_count", [](const BlockManager& self, int id) { return self.get_ref_count(id); });
      manager.def("get_num_free_blocks", [](const BlockManager& self) { return self.get_num_free_blocks(); });
      auto add = [&](auto tag, const char* name, PyObject* base) {
        py::register_local_exception<decltype(tag)>(m, name, base);
      };
      add(PoolSizeError(0), "PoolSizeError", PyExc_ValueError);
      add(OutOfBlocksError(0), "OutOfBlocksError", PyExc_MemoryError);
      add(BlockIndexError(0), "BlockIndexError", PyExc_IndexError);
      add(DoubleFreeError(0), "DoubleFreeError", PyExc_RuntimeError);
      add(BlockNotAllocatedError(0), "BlockNotAllocatedError", PyExc_RuntimeError);
    }
    """,
]


def fork_by_comprehension(manager, blocks):
    return [(manager.increase_ref_count(block), block)[1] for block in blocks]


def fork_by_append(manager, blocks):
    child = []
    for index in range(len(blocks)):
        child.append(blocks[index])
        manager.increase_ref_count(child[-1])
    return child


def fork_by_slice(manager, blocks):
    child = blocks[:]
    for block in reversed(child):
        manager.increase_ref_count(block)
    return child


def write_with_clone(manager, pool, blocks, position, value):
    block_size = pool.size(1)
    index = position // block_size
    shared = blocks[index]
    if manager.get_ref_count(shared) != 1:
        fresh = manager.allocate()
        pool[fresh].copy_(pool[shared].clone())
        blocks[index] = fresh
        manager.free(shared)
    pool[blocks[index]][position % block_size] = value


def write_early_return(manager, pool, blocks, position, value):
    slot = position % pool.shape[1]
    index = (position - slot) // pool.shape[1]
    if manager.get_ref_count(blocks[index]) == 1:
        pool[blocks[index], slot] = value
        return
    own = manager.allocate()
    for column in range(pool.shape[1]):
        pool[own, column] = pool[blocks[index], column]
    pool[own, slot] = value
    manager.free(blocks[index])
    blocks[index] = own


def write_through_flat_view(manager, pool, blocks, position, value):
    block_size = pool.shape[1]
    if manager.get_ref_count(blocks[position // block_size]) >= 2:
        old, new = blocks[position // block_size], manager.allocate()
        manager.free(old)
        pool[new, :] = pool[old, :]
        blocks[position // block_size] = new
    pool.view(-1)[blocks[position // block_size] * block_size + position % block_size] = value


RIGHT_ANSWERS = {
    "1.1": FREE_LISTS,
    "1.2": BLOCK_MANAGERS,
    "1.3": SAFE_BLOCK_MANAGERS,
    "1.4": BINDINGS,
    "1.5": [fork_by_comprehension, fork_by_append, fork_by_slice],
    "1.6": [write_with_clone, write_early_return, write_through_flat_view],
}

//===- Reducer.cpp - opening a communication library ----------------------===//

#include "runtime/Distributed/Reducer.h"

#include <dlfcn.h>

namespace nsa {

/// The function that makes reducers. The library is never closed: its threads
/// may outlive a reducer.
static Result<CreateReducer> openPlugin(const std::string &plugin) {
  void *library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Error{std::string("several ranks on the CPU need Gloo: ") +
                 ::dlerror() +
                 " (built where libgloo-dev is installed; --gloo says where)"};
  auto create =
      reinterpret_cast<CreateReducer>(::dlsym(library, createReducerName));
  if (!create)
    return Error{"'" + plugin + "' does not define " + createReducerName};
  return create;
}

Status checkReducer(const std::string &plugin) {
  Result<CreateReducer> create = openPlugin(plugin);
  return create ? Status() : Error{create.message()};
}

Result<std::unique_ptr<Reducer>> openReducer(const std::string &plugin,
                                             const ReducerOptions &options) {
  NSA_ASSIGN_OR_RETURN(CreateReducer create, openPlugin(plugin));
  std::string error;
  std::unique_ptr<Reducer> reducer(create(reducerVersion, options, error));
  if (!reducer)
    return Error{error};
  return reducer;
}

} // namespace nsa

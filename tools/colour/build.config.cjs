module.exports = {
  optimization: {
    // Modules stay apart: the list of licences leaves out those that are merged into another one.
    concatenateModules: false,
    // Numbers by order. The usual ones depend on the folder that this is built in.
    moduleIds: 'natural',
    chunkIds: 'natural'
  }
};

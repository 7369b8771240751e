package httplimit

// NormalPath is normalPath, for tests.
var NormalPath = normalPath

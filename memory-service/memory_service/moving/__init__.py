"""How does a user's memory get from one server to another?  lines · identity · placing · seeds · exports · service"""
